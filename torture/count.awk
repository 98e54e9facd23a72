# Reads what `cargo test` printed, says what was skipped and why, and ends with one line of counts.
#
# A test that cannot run here writes `SKIPPED: reason` to the standard error, past the capture of the test harness.
# With CI set a skipped test fails the run: there everything is installed, so nothing may be missing.

/SKIPPED: / { reasons[++skipped] = substr($0, index($0, "SKIPPED: ")) }
/^test result: / { suites++; passed += $4; failed += $6; ignored += $8 }

END {
    for (i = 1; i <= skipped; i++) print reasons[i]
    if (cargo_failed && !failed) failed = 1 # it did not build, or a test program died
    if (!suites) failed = 1
    printf "%d passed, %d failed, %d skipped\n", passed - skipped, failed, skipped + ignored
    exit failed || (ci != "" && skipped + ignored)
}
