//! Addresses to which webhooks are sent: public ones, and those in ranges that the operator allows. Everything else is refused,
//! so that a user of the server cannot reach the operator's network through it. The rules judge the address that is connected
//! to, never a name.
//!
//! Ranges are those of IANA's registries of special-purpose addresses for IPv4 and IPv6. An IPv6 address that stands for an
//! IPv4 address (`::ffff:0:0/96`, and NAT64's `64:ff9b::/96`) is judged as that one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    bits: u8,
}

/// Kind of an address that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPublic {
    Loopback,
    Private,
    LinkLocal,
    Multicast,
    /// Unspecified, reserved, for documentation or for a transition mechanism.
    Reserved,
}

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotPublic::Loopback => "a loopback address",
            NotPublic::Private => "a private address",
            NotPublic::LinkLocal => "a link-local address",
            NotPublic::Multicast => "a multicast address",
            NotPublic::Reserved => "a reserved address",
        })
    }
}

/// The operator's choice of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    pub allowed: Vec<AddressRange>,
}

impl AddressRules {
    /// Checks the address of a connection.
    pub fn check(&self, ip: IpAddr) -> Result<(), NotPublic> {
        if self.is_explicitly_allowed(ip) { Ok(()) } else { check_public(canonical(ip)) }
    }

    /// Whether a range of the operator has the address.
    pub fn is_explicitly_allowed(&self, ip: IpAddr) -> bool {
        let canonical = canonical(ip);
        self.allowed.iter().any(|range| range.contains(ip) || range.contains(canonical))
    }
}

impl AddressRange {
    fn contains(&self, ip: IpAddr) -> bool {
        match (self.first, ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => (u32::from(first) ^ u32::from(ip)) & mask(self.bits, 32) as u32 == 0,
            (IpAddr::V6(first), IpAddr::V6(ip)) => (u128::from(first) ^ u128::from(ip)) & mask(self.bits, 128) == 0,
            _ => false,
        }
    }
}

/// The first `bits` of a number of `width` bits.
fn mask(bits: u8, width: u8) -> u128 {
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    all ^ all.checked_shr(bits.into()).unwrap_or(0)
}

/// Parses `ADDRESS/BITS`, or one address.
impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a range of addresses: write one such as 10.0.0.0/8 or fd00::/8");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| invalid())?;
        let width: u8 = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) if bits.bytes().all(|c| c.is_ascii_digit()) => bits.parse().map_err(|_| invalid())?,
            Some(_) => return Err(invalid()),
        };
        let number = match first {
            IpAddr::V4(ip) => u32::from(ip).into(),
            IpAddr::V6(ip) => u128::from(ip),
        };
        if bits > width {
            return Err(invalid());
        }
        if number & !mask(bits, width) != 0 {
            return Err(format!("'{text}' has bits set beyond its first {bits}: write the first address of the range"));
        }
        Ok(Self { first, bits })
    }
}

/// The IPv4 address that an IPv6 address stands for, or the address itself.
fn canonical(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let [a, b, c, d, e, f, high, low] = v6.segments();
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
        }
        _ => ip,
    }
}

fn check_public(ip: IpAddr) -> Result<(), NotPublic> {
    match ip {
        IpAddr::V4(ip) => check_public_v4(ip),
        IpAddr::V6(ip) => check_public_v6(ip),
    }
}

fn check_public_v4(ip: Ipv4Addr) -> Result<(), NotPublic> {
    use NotPublic::*;
    Err(match ip.octets() {
        [127, ..] => Loopback,
        // 100.64.0.0/10 is shared by a provider and its customers.
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Private,
        [169, 254, ..] => LinkLocal,
        [224..=239, ..] => Multicast,
        [0, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Reserved
        }
        [240..=255, ..] => Reserved,
        _ => return Ok(()),
    })
}

/// Only `2000::/3` is allocated to networks.
fn check_public_v6(ip: Ipv6Addr) -> Result<(), NotPublic> {
    use NotPublic::*;
    Err(match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Loopback,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Private,
        [0xfe80..=0xfebf, ..] => LinkLocal,
        [0xff00..=0xffff, ..] => Multicast,
        // Protocol assignments with Teredo, documentation, 6to4: all can stand for other addresses or for none.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => Reserved,
        [0x2000..=0x3fff, ..] => return Ok(()),
        _ => Reserved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(ranges: &[&str]) -> AddressRules {
        AddressRules { allowed: ranges.iter().map(|range| range.parse().expect("a range")).collect() }
    }

    fn check(rules: &AddressRules, ip: &str, expected: Result<(), NotPublic>) {
        assert_eq!(rules.check(ip.parse().expect("an address")), expected, "{ip}");
    }

    #[test]
    fn only_public_addresses_are_reached_by_default() {
        use NotPublic::*;
        let table: &[(&str, Result<(), NotPublic>)] = &[
            ("1.1.1.1", Ok(())),
            ("9.255.255.255", Ok(())),
            ("10.0.0.0", Err(Private)),
            ("10.255.255.255", Err(Private)),
            ("11.0.0.0", Ok(())),
            ("100.63.255.255", Ok(())),
            ("100.64.0.0", Err(Private)),
            ("100.127.255.255", Err(Private)),
            ("100.128.0.0", Ok(())),
            ("127.0.0.1", Err(Loopback)),
            ("127.255.255.255", Err(Loopback)),
            ("128.0.0.0", Ok(())),
            ("169.254.169.254", Err(LinkLocal)),
            ("172.15.255.255", Ok(())),
            ("172.16.0.1", Err(Private)),
            ("172.31.255.255", Err(Private)),
            ("172.32.0.0", Ok(())),
            ("192.168.1.1", Err(Private)),
            ("0.0.0.0", Err(Reserved)),
            ("0.1.2.3", Err(Reserved)),
            ("192.0.0.170", Err(Reserved)),
            ("192.0.2.1", Err(Reserved)),
            ("192.88.99.1", Err(Reserved)),
            ("198.17.0.1", Ok(())),
            ("198.18.0.1", Err(Reserved)),
            ("198.51.100.1", Err(Reserved)),
            ("203.0.113.1", Err(Reserved)),
            ("224.0.0.1", Err(Multicast)),
            ("240.0.0.1", Err(Reserved)),
            ("255.255.255.255", Err(Reserved)),
            ("2606:4700::1111", Ok(())),
            ("2001:200::1", Ok(())),
            ("::", Err(Reserved)),
            ("::1", Err(Loopback)),
            ("::127.0.0.1", Err(Reserved)),
            ("::ffff:127.0.0.1", Err(Loopback)),
            ("::ffff:10.0.0.1", Err(Private)),
            ("::ffff:169.254.169.254", Err(LinkLocal)),
            ("::ffff:1.1.1.1", Ok(())),
            ("::ffff:0:127.0.0.1", Err(Reserved)),
            ("64:ff9b::10.0.0.1", Err(Private)),
            ("64:ff9b::1.1.1.1", Ok(())),
            ("64:ff9b:1::1", Err(Reserved)),
            ("100::1", Err(Reserved)),
            ("2001::1", Err(Reserved)),
            ("2001:db8::1", Err(Reserved)),
            ("2002:7f00:1::", Err(Reserved)),
            ("3fff::1", Err(Reserved)),
            ("4000::1", Err(Reserved)),
            ("fc00::1", Err(Private)),
            ("fd12:3456::1", Err(Private)),
            ("fec0::1", Err(Private)),
            ("fe80::1", Err(LinkLocal)),
            ("ff02::1", Err(Multicast)),
        ];
        for (ip, expected) in table {
            check(&AddressRules::default(), ip, *expected);
        }
    }

    #[test]
    fn the_operator_allows_ranges() {
        let some = rules(&["10.1.0.0/16", "127.0.0.1", "fd00::/8"]);
        check(&some, "10.1.255.255", Ok(()));
        check(&some, "10.2.0.0", Err(NotPublic::Private));
        check(&some, "127.0.0.1", Ok(()));
        check(&some, "::ffff:127.0.0.1", Ok(()));
        check(&some, "127.0.0.2", Err(NotPublic::Loopback));
        check(&some, "fd12::1", Ok(()));
        check(&some, "fc00::1", Err(NotPublic::Private));
        check(&some, "1.1.1.1", Ok(()));
        let all = rules(&["0.0.0.0/0", "::/0"]);
        for ip in ["127.0.0.1", "::1", "255.255.255.255", "ff02::1"] {
            check(&all, ip, Ok(()));
        }
        assert!(!some.is_explicitly_allowed("1.1.1.1".parse().expect("an address")));
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let check = |text: &str, expected: Option<&str>| {
            let problem = text.parse::<AddressRange>().err();
            match (&problem, expected) {
                (None, None) => {}
                (Some(problem), Some(part)) => assert!(problem.contains(part), "{text}: {problem}"),
                _ => panic!("{text}: {problem:?}"),
            }
        };
        for good in ["10.0.0.0/8", "127.0.0.1", "127.0.0.1/32", "0.0.0.0/0", "::/0", "fd00::/8", "::1"] {
            check(good, None);
        }
        for wrong in
            ["", "10", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8", "localhost", "10.0.0.0/-1"]
        {
            check(wrong, Some("is not a range of addresses"));
        }
        check("10.1.2.3/8", Some("beyond its first 8"));
        check("fd00::1/8", Some("beyond its first 8"));
    }
}
