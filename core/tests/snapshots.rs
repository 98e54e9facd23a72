//! The bytes of a snapshot: fixed for ever once written, and refused when they are not what a table writes.

mod desk;

use std::time::Duration;

use desk::{A, B, Desk, Process, TTL, name, token};
use leasehold_core::{
    Answer, AttemptId, BadSnapshot, Begin, Command, Fingerprint, Holder, Info, LockDelay, Op,
    Proof, Resource, StoreTime, Table, Unfinished, WallTime, Work, WorkKey,
};

/// Format 1: version, time, floor, ledger's beginning, newest event; then leases, pairs, fences, entries. A change of these
/// bytes needs a new version, and code that still reads this one.
const VERSION_1: &str = "
    01 80a8d6b907 00 00 80a8bea9a6ca9cc318
    02
        06 6f7264657273 0101 80f085da2c 904e e807
            01 0a 02 01 61 01 0a 31302e302e302e313a31 80a8d6b907 00 01 01 81808080808080808014
        05 7368617264 0101 80a8d6b907 904e 00
            01 0b 01 01 62 00 80a8d6b907 01 00 00
    01
        06 7265706f7274 01 31 01 06 6f7264657273 01
    01
        04 6469736b 06 6f7264657273 01
    01
        06 6f7264657273 03 6a6f62 01 07 01 61
            0101010101010101010101010101010101010101010101010101010101010101 80a8bea9a6ca9cc318 00";

/// An empty table with this where the floor is.
fn with_floor(floor: &str) -> Vec<u8> {
    unhex(&format!("01 00 {floor} 00 00 00 00 00 00"))
}

/// One row of each kind.
fn everything() -> Desk {
    let mut desk = Desk {
        wall: WallTime::from_nanos(1_767_225_600_000_000_000),
        ..Desk::default()
    };
    desk.pass(Duration::from_secs(2));
    let mut asked = A.acquire(2);
    asked.info = Some(Info::new("10.0.0.1:1").expect("it fits"));
    asked.lock_delay = LockDelay::new(Duration::from_secs(1)).expect("it fits");
    let Answer::Granted(grant) = desk.command("orders", Command::Acquire(asked)) else {
        panic!("it is free")
    };
    desk.renew("orders", A, grant.token, 1);
    let shard = desk.granted("shard", B);
    desk.release("shard", B, shard);
    desk.write("orders", grant.token).expect("it is held");
    let proof = Proof {
        lease: name("orders"),
        token: grant.token,
    };
    desk.apply(Op::Raise {
        resource: Resource::new("disk").expect("it fits"),
        proof,
    });
    desk.apply(Op::Begin(Begin {
        work: Work {
            lease: name("orders"),
            key: WorkKey::new("job").expect("it fits"),
        },
        token: grant.token,
        attempt: AttemptId::from_bits(7).expect("not zero"),
        holder: Holder::new("a").expect("it fits"),
        fingerprint: Fingerprint([1; 32]),
        unfinished: Unfinished::Leave,
        born: None,
    }));
    desk.pass(TTL);
    desk
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
        .collect()
}

#[test]
fn the_format_is_what_it_was() {
    let desk = everything();
    assert_eq!(hex(&desk.table.snapshot()), hex(&unhex(VERSION_1)));
    assert_eq!(Table::restore(&unhex(VERSION_1)).as_ref(), Ok(&desk.table));
}

#[test]
fn an_unknown_version_is_named() {
    let mut bytes = unhex(VERSION_1);
    bytes[0] = 2;
    let error = Table::restore(&bytes).expect_err("nobody can read it yet");
    assert_eq!(error, BadSnapshot::Version(2));
    assert!(error.to_string().contains("format 2") && error.to_string().contains("format 1"));
    assert_eq!(Table::restore(&[]), Err(BadSnapshot::Corrupt));
}

/// INV-13: no token in a snapshot is zero or beyond the last.
#[test]
fn a_snapshot_holds_no_number_that_is_no_token() {
    let good = Table::restore(&with_floor("01 07")).expect("7 is a token");
    assert_eq!(good.floor(), Some(token(7)));
    let last = Table::restore(&with_floor("01 ffffffffffffffff7f")).expect("the last token");
    assert_eq!(last.floor(), Some(leasehold_core::Token::MAX));
    for bad in [
        "01 00",
        "01 80808080808080808001",
        "01 ffffffffffffffffff01",
    ] {
        assert_eq!(
            Table::restore(&with_floor(bad)),
            Err(BadSnapshot::Corrupt),
            "{bad}"
        );
    }
}

/// What no table writes is refused, also if each row is well formed.
#[test]
fn rows_that_no_table_writes_are_refused() {
    let changes = [
        ("a name twice", "05 7368617264 0101", "06 6f7264657273 0101"),
        (
            "names out of order",
            "05 7368617264 0101",
            "05 6161617264 0101",
        ),
        (
            "a holder without a token",
            "05 7368617264 0101",
            "05 7368617264 00",
        ),
        ("an empty name", "05 7368617264 0101", "00 0101"),
        (
            "a name with a line break",
            "05 7368617264 0101",
            "05 736861720a 0101",
        ),
        ("a ttl of 0", "80a8d6b907 904e 00", "80a8d6b907 00 00"),
        ("a session of 0", "01 0b 01 01 62", "01 00 01 01 62"),
        (
            "more rows than there are",
            "\n    02\n",
            "\n    ffffffff0f\n",
        ),
    ];
    for (what, before, after) in changes {
        assert_eq!(VERSION_1.matches(before).count(), 1, "{what}");
        let bytes = unhex(&VERSION_1.replace(before, after));
        assert_eq!(Table::restore(&bytes), Err(BadSnapshot::Corrupt), "{what}");
    }
}

/// A snapshot is small: what is stored, and a byte or two for each number.
#[test]
fn a_lease_takes_about_as_many_bytes_as_its_texts_and_ids() {
    let mut desk = Desk {
        now: StoreTime::from_nanos(1 << 50),
        requests: u128::MAX / 5,
        ..Desk::default()
    };
    let a = Process {
        session: u128::MAX / 3,
        ..A
    };
    let empty = desk.table.snapshot().len();
    for number in 0..1_000 {
        desk.granted(&format!("lease-{number:04}"), a);
    }
    let each = (desk.table.snapshot().len() - empty) / 1_000;
    assert!(each < 80, "{each} bytes a lease");
}
