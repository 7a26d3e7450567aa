//! Literal SAS queries with their expected results. The signatures were computed with another implementation of HMAC.

use super::*;

/// 2018-06-07T22:21:55Z.
const EXPIRES: i64 = 1_528_410_115;
const LINK: &str = "sv=2016-05-31&sr=f\
    &sig=l%2BYvgBR0JUPnEt6YJgx%2BHB%2By%2BXxI8ol60n0dThfMoJA%3D\
    &se=2018-06-07T22%3A21%3A55Z&sp=rl";
const LIMITED: &str = "sv=2018-03-28&sr=s&sp=r&st=2018-06-07T00:00:00Z&se=2018-06-08\
    &sip=10.0.0.1-10.0.0.9&spr=https&rscd=attachment&rsct=text/plain\
    &sig=gxpsCx33UTuH/owXy%2BKjR6jzT4gRb5Himawag5sVG10%3D";
const PLAIN: Bearer = Bearer { address: None, over_tls: false };

fn key() -> Vec<u8> {
    (0..64).collect()
}

fn parse(query: &str) -> Sas {
    Sas::from_query(query).expect("has a signature").expect("well formed")
}

fn check(query: &str, share: &str, path: &str, now: i64, bearer: Bearer) -> Result<(), SasError> {
    let keys = [vec![9; 64], key()];
    answer(&parse(query), &keys, share, path, bearer, now)
}

/// Checks the signature, then the terms, without an access policy.
fn answer<K: AsRef<[u8]>>(
    sas: &Sas,
    keys: &[K],
    share: &str,
    path: &str,
    bearer: Bearer,
    now: i64,
) -> Result<(), SasError> {
    sas.check_signature(keys, "acc", share, path)?;
    sas.clone().check_terms(None, bearer, now).map(|_| ())
}

#[test]
fn a_made_link_has_the_services_order_and_opens_one_file() {
    let made = read_link_query(&key(), "acc", "myshare", "out put/stdout.txt", EXPIRES);
    assert_eq!(made.expect("a time of the calendar"), LINK);

    let answers = [
        ("myshare", "out put/stdout.txt", EXPIRES - 1, Ok(())),
        ("myshare", "out put/stdout.txt", EXPIRES, Err(SasError::Expired)),
        ("myshare", "out put/stderr.txt", EXPIRES - 1, Err(SasError::Signature)),
        ("myshare", "", EXPIRES - 1, Err(SasError::Signature)),
        ("other", "out put/stdout.txt", EXPIRES - 1, Err(SasError::Signature)),
        // Wrong file and expired: only the signature error is reported.
        ("other", "out put/stdout.txt", EXPIRES + 1, Err(SasError::Signature)),
    ];
    for (share, path, now, expected) in answers {
        assert_eq!(check(LINK, share, path, now, PLAIN), expected, "{share}/{path} at {now}");
    }
    let sas = parse(LINK);
    assert!(sas.check_signature(&[vec![9; 64]], "acc", "myshare", "out put/stdout.txt").is_err());
    assert!(sas.permits(Permission::Read) && sas.permits(Permission::List));
    assert!(!sas.permits(Permission::Write) && !sas.permits(Permission::Delete));
    assert!(!sas.permits(Permission::Create));
}

#[test]
fn a_link_made_for_somebody_says_so_under_its_signature() {
    let file = ("acc", "myshare", "out put/stdout.txt");
    let link = link_query(Resource::File, "rl", &key(), file, EXPIRES, "some-app.mark").expect("a time");
    assert_eq!(parse(&link).by, "some-app.mark");
    let opens = |link: &str| check(link, file.1, file.2, EXPIRES - 1, PLAIN);
    assert_eq!(opens(&link), Ok(()));
    let stripped = link.split("&by=").next().expect("a beginning");
    assert_eq!(opens(stripped), Err(SasError::Signature));
    assert_eq!(opens(&format!("{stripped}&by=other%2Dapp%2Emark")), Err(SasError::Signature));
    // A SAS without `by` cannot get one either.
    assert_eq!(opens(&format!("{LINK}&by=some%2Dapp%2Emark")), Err(SasError::Signature));
}

#[test]
fn a_share_link_covers_every_path_but_keeps_its_limits() {
    let start = 1_528_329_600; // 2018-06-07T00:00:00Z
    let from = |address: &str, over_tls| Bearer { address: Some(address.parse().expect("an address")), over_tls };
    let good = from("10.0.0.5", true);
    let answers = [
        (start, good, Ok(())),
        (start + 86_399, from("::ffff:10.0.0.9", true), Ok(())),
        (start - 1, good, Err(SasError::NotYet)),
        (start + 86_400, good, Err(SasError::Expired)),
        (start, from("10.0.0.10", true), Err(SasError::Address)),
        (start, from("::1", true), Err(SasError::Address)),
        (start, Bearer { address: None, over_tls: true }, Err(SasError::Address)),
        (start, from("10.0.0.5", false), Err(SasError::Protocol)),
    ];
    for (now, bearer, expected) in answers {
        for path in ["", "a", "deep/er"] {
            assert_eq!(check(LIMITED, "myshare", path, now, bearer), expected, "{now} {bearer:?}");
        }
    }
    let overrides = parse(LIMITED).overrides;
    assert_eq!(overrides.content_disposition, "attachment");
    assert_eq!(overrides.content_type, "text/plain");
}

#[test]
fn every_changed_parameter_breaks_the_signature() {
    for (from, to) in [("sp=rl", "sp=rwl"), ("T22", "T23"), ("sv=2016", "sv=2017"), ("sr=f", "sr=s")] {
        let forged = LINK.replace(from, to);
        assert_ne!(forged, LINK);
        let answer = check(&forged, "myshare", "out put/stdout.txt", 0, PLAIN);
        assert_eq!(answer, Err(SasError::Signature), "{forged}");
    }
    for added in ["&rsct=text/html", "&st=2001-01-01", "&spr=https", "&sip=10.0.0.1", "&si=x"] {
        let answer = check(&format!("{LINK}{added}"), "myshare", "out put/stdout.txt", 0, PLAIN);
        assert_eq!(answer, Err(SasError::Signature), "{added}");
    }
}

#[test]
fn malformed_links_are_told_from_no_links() {
    assert_eq!(Sas::from_query("restype=share"), None);
    assert_eq!(Sas::from_query("sv=1&sr=f&sig="), None);
    for query in [
        "sr=f&sig=x",
        "sv=2018-03-28&sig=x",
        "sv=2018-03-28&sr=q&sig=x",
        "sv=2018-03-28&sr=f&sp=r&sp=rw&sig=x",
        "sv=2018-03-28&sr=f&sp=r%0A&sig=x",
    ] {
        assert_eq!(Sas::from_query(query), Some(Err(SasError::Malformed)), "{query}");
    }
}

#[test]
fn times_in_every_documented_form() {
    for (text, expected) in [
        ("2018-06-07T22:21:55Z", Some(EXPIRES)),
        ("2018-06-07T22:21Z", Some(EXPIRES - 55)),
        ("2018-06-07T22:21:55.0000000Z", Some(EXPIRES)),
        ("2018-06-07", Some(1_528_329_600)),
        ("", None),
        ("Z", None),
        ("soon", None),
    ] {
        assert_eq!(terms::seconds(text), expected, "{text}");
    }
}

#[test]
fn a_link_made_here_opens_the_door() {
    let key = [7; 64];
    for (resource, path) in [(Resource::File, "d d/f+g"), (Resource::Share, "")] {
        let sas = Sas {
            version: "2018-03-28".to_owned(),
            resource,
            permissions: "rw".to_owned(),
            start: "2018-06-07".to_owned(),
            expiry: "2018-06-08T00:00Z".to_owned(),
            overrides: Overrides { content_disposition: "attachment; x=\"&\"".to_owned(), ..Overrides::default() },
            ..Sas::default()
        };
        let query = sas.signed_query(&key, "acc", "share", path);
        assert!(query.starts_with("st=2018-06-07&se=2018-06-08T00%3A00Z&sp=rw&sv=2018-03-28&sr="), "{query}");
        let read = Sas::from_query(&query).expect("signed").expect("well-formed");
        let bearer = Bearer { address: None, over_tls: false };
        let now = 1_528_410_115;
        assert_eq!(answer(&read, &[key], "share", path, bearer, now), Ok(()));
        assert_eq!(answer(&read, &[[8; 64]], "share", path, bearer, now), Err(SasError::Signature));
        assert_eq!(read.overrides, sas.overrides);
    }
    assert!(is_time("2018-06-08") && is_time("2018-06-08T00:00Z") && !is_time("tomorrow"));
}

#[test]
fn a_policy_says_what_the_link_leaves_out_and_only_that() {
    let text = |text: &str| text.to_owned();
    let policy = |start: &str, expiry: &str, permissions: &str| Policy {
        start: text(start),
        expiry: text(expiry),
        permissions: text(permissions),
    };
    let link = |expiry: &str, permissions: &str| Sas {
        identifier: text("p"),
        expiry: text(expiry),
        permissions: text(permissions),
        ..Sas::default()
    };
    let (day, past) = ("2018-06-08", "2018-06-06");
    let whole = policy("", day, "rl");
    for (link, policy, expected) in [
        (link("", ""), Some(&whole), Ok("rl")),
        (link("", ""), None, Err(SasError::Policy)),
        (link(day, ""), Some(&whole), Err(SasError::Policy)),
        (link("", "w"), Some(&whole), Err(SasError::Policy)),
        (link("", ""), Some(&policy("", past, "rl")), Err(SasError::Expired)),
        (link("", ""), Some(&policy("2018-06-08", "2018-06-09", "rl")), Err(SasError::NotYet)),
        (link(day, ""), Some(&policy("", "", "r")), Ok("r")),
        (link("", "w"), Some(&policy("", day, "")), Ok("w")),
        // Without an expiry in either, the SAS is malformed.
        (link("", "w"), Some(&policy("", "", "")), Err(SasError::Malformed)),
    ] {
        let found = link.check_terms(policy, PLAIN, EXPIRES).map(|sas| sas.permissions);
        assert_eq!(found.as_deref().map_err(|refused| *refused), expected);
    }
}
