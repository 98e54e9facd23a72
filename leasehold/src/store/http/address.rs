//! The URL of a server, or of several that serve one store: `http://host:port`, `http://one:4850,two:4850`.

use http::{
    Uri,
    uri::{Authority, Scheme},
};

/// The port of a server, where the URL names none.
pub const PORT: u16 = 4850;

/// Where the servers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoints: Vec<Authority>,
    pub(super) scheme: Scheme,
}

/// So many servers are enough.
const MOST: usize = 16;

impl Address {
    /// The error says what is wrong, without the URL, which may have a credential in it.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Scheme::HTTP, rest),
            Some(("https", _)) => return Err("this build speaks no TLS".into()),
            _ => return Err("it begins with http://".into()),
        };
        let hosts = rest.strip_suffix('/').unwrap_or(rest);
        if hosts.contains(['/', '?', '#']) {
            return Err("a server is a host and a port, without a path".into());
        }
        if hosts.contains('@') {
            return Err("it takes no user and no password".into());
        }
        let endpoints = hosts
            .split(',')
            .map(endpoint)
            .collect::<Result<Vec<_>, _>>()?;
        match endpoints.len() <= MOST {
            true => Ok(Self { endpoints, scheme }),
            false => Err(format!("it names more than {MOST} servers")),
        }
    }

    /// A place at one of the servers.
    pub(super) fn at(&self, endpoint: usize, path: &str) -> Result<Uri, String> {
        let place = endpoint.checked_rem(self.endpoints.len()).unwrap_or(0);
        let authority = self.endpoints.get(place).ok_or("there is no server")?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(authority.clone())
            .path_and_query(path)
            .build()
            .map_err(|error| error.to_string())
    }
}

fn endpoint(text: &str) -> Result<Authority, String> {
    let bad = || "a server is HOST or HOST:PORT, and [ADDRESS]:PORT for IPv6".to_owned();
    let authority: Authority = text.parse().map_err(|_| bad())?;
    let names_a_port = authority.as_str().len() > authority.host().len();
    match authority.port_u16() {
        _ if authority.host().is_empty() => Err(bad()),
        Some(1..) => Ok(authority),
        _ if names_a_port => Err("a port is from 1 to 65535".into()),
        _ => format!("{}:{PORT}", authority.host())
            .parse()
            .map_err(|_| bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_server_or_several() {
        let address = Address::parse("http://one,two:80,[::1]:9/").expect("it is right");
        let places: Vec<_> = address.endpoints.iter().map(Authority::as_str).collect();
        assert_eq!(places, ["one:4850", "two:80", "[::1]:9"]);
        let place = address.at(4, "/v1/store").expect("a place");
        assert_eq!(place.to_string(), "http://two:80/v1/store");
    }

    #[test]
    fn a_url_that_names_no_server_is_refused() {
        for bad in [
            "http://",
            "http:///",
            "http://a,,b",
            "http://a:",
            "http://a:0",
            "http://a:99999",
            "http://a/path",
            "http://a?x",
            "http://user:secret@a",
            "http://a b",
            "https://a",
            "http:a",
        ] {
            let error = Address::parse(bad).expect_err(bad);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
