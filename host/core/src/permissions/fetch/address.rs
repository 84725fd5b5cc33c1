//! Network addresses: which are public, and the kinds of all others. An address that is not public
//! is refused unless the operator granted a network that covers it. An address with an embedded
//! IPv4 address must pass for that one too.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

/// The reason why an address is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    Unspecified,
    Loopback,
    Private,
    LinkLocal,
    /// Carrier-grade NAT (RFC 6598).
    Shared,
    /// The metadata service of a cloud, which holds a machine's credentials.
    Metadata,
    Multicast,
    Broadcast,
    Documentation,
    Benchmark,
    /// An IPv6 address that stands for an IPv4 address: mapped, compatible, translated, tunnelled.
    Translated,
    /// Reserved for protocols, or unassigned.
    Reserved,
}

impl AddressKind {
    /// The kind of an address; `None` if it is public.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Shared => "shared",
            Self::Metadata => "cloud metadata",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Documentation => "documentation",
            Self::Benchmark => "benchmark",
            Self::Translated => "translated",
            Self::Reserved => "reserved",
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// Allows a connection to this address if it is public, or in one of these networks. Allocates
/// nothing.
///
/// A metadata address must be in `private` itself; a network around it is not enough.
///
/// # Errors
/// The kind of the address.
pub fn check_address(address: IpAddr, private: &[IpNet]) -> Result<(), AddressKind> {
    let Some(kind) = AddressKind::of(address) else { return Ok(()) };
    let is_granted = |address: IpAddr, kind: AddressKind| {
        private.iter().any(|network| {
            network.contains(&address)
                && (kind != AddressKind::Metadata
                    || network.prefix_len() == network.max_prefix_len())
        })
    };
    let IpAddr::V6(outer) = address else {
        return if is_granted(address, kind) { Ok(()) } else { Err(kind) };
    };
    let within = carried(outer);
    let covers_within = within.iter().flatten().any(|address| {
        let address = IpAddr::V4(*address);
        is_granted(address, AddressKind::of(address).unwrap_or(kind))
    });
    if !is_granted(address, kind) && !covers_within {
        return Err(kind);
    }
    within.iter().flatten().try_for_each(|address| check_address(IpAddr::V4(*address), private))
}

/// Whether an address literally names a machine or its own network, so that its grant must not be a
/// line to copy. Names are not resolved.
#[must_use]
pub fn is_inside(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let last = name.rsplit('.').next().unwrap_or_default();
            !name.contains('.')
                || ["localhost", "local", "internal", "lan", "home", "corp", "intranet", "private"]
                    .contains(&last)
        }
        Some(Host::Ipv4(address)) => AddressKind::of(address.into()).is_some(),
        Some(Host::Ipv6(address)) => AddressKind::of(address.into()).is_some(),
        None => true,
    }
}

fn of_v4(address: Ipv4Addr) -> Option<AddressKind> {
    use AddressKind::*;
    Some(match address.octets() {
        // AWS and most others; Oracle and Azure's newer one; Alibaba; the host of an Azure machine.
        [169, 254, 169, 254] | [192, 0, 0, 192] | [100, 100, 100, 200] | [168, 63, 129, 16] => {
            Metadata
        }
        [0, 0, 0, 0] => Unspecified,
        [0, ..] => Reserved,
        [127, ..] => Loopback,
        [10, ..] | [192, 168, ..] => Private,
        [172, second, ..] if second & 0xf0 == 16 => Private,
        [169, 254, ..] => LinkLocal,
        [100, second, ..] if second & 0xc0 == 64 => Shared,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Documentation,
        [192, 0, 0, _] | [192, 88, 99, _] => Reserved,
        [198, 18 | 19, ..] => Benchmark,
        [255, 255, 255, 255] => Broadcast,
        [224..=239, ..] => Multicast,
        [240..=255, ..] => Reserved,
        _ => return None,
    })
}

fn of_v6(address: Ipv6Addr) -> Option<AddressKind> {
    use AddressKind::*;
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Loopback,
        // Compatible, mapped, and translated as in RFC 2765.
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Translated,
        // NAT64, 6to4, Teredo.
        [0x64, 0xff9b, 0 | 1, ..] | [0x2002, ..] | [0x2001, 0, ..] => Translated,
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254] => Metadata,
        [0x2001, 2, 0, ..] => Benchmark,
        [0x2001, second, ..] if second < 0x200 => Reserved,
        [0x2001, 0xdb8, ..] => Documentation,
        [0x3fff, second, ..] if second < 0x1000 => Documentation,
        [first, ..] if first & 0xfe00 == 0xfc00 => Private,
        [first, ..] if first & 0xffc0 == 0xfe80 => LinkLocal,
        // Site-local, the predecessor of ULA.
        [first, ..] if first & 0xffc0 == 0xfec0 => Private,
        [first, ..] if first & 0xff00 == 0xff00 => Multicast,
        // Only 2000::/3 is assigned.
        [first, ..] if first & 0xe000 != 0x2000 => Reserved,
        _ => return None,
    })
}

/// The IPv4 addresses that an IPv6 address may stand for.
fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            [Some(join(high, low)), None]
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [Some(join(high, low)), None],
        // A /48 has it around bits 64 to 71 (RFC 6052); a private network within it may have it at
        // the end.
        [0x64, 0xff9b, 1, high, middle, low, end_high, end_low] => {
            let around = join(high, (middle << 8) | (low >> 8));
            [Some(around), Some(join(end_high, end_low))]
        }
        [0x2002, high, low, ..] => [Some(join(high, low)), None],
        // The server, and the client with its bits inverted.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            [Some(join(server_high, server_low)), Some(join(!high, !low))]
        }
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(address: &str) -> Option<AddressKind> {
        AddressKind::of(address.parse().unwrap_or_else(|_| panic!("{address}")))
    }

    fn may(private: &[&str], address: &str) -> bool {
        let network =
            |text: &&str| text.parse().or_else(|_| text.parse::<IpAddr>().map(Into::into)).unwrap();
        let private: Vec<IpNet> = private.iter().map(network).collect();
        check_address(address.parse().unwrap(), &private).is_ok()
    }

    #[test]
    fn public_addresses_are_public() {
        for address in [
            "8.8.8.8",
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn every_other_address_is_of_a_kind() {
        use AddressKind::*;
        for (address, expected) in [
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Reserved),
            ("127.0.0.1", Loopback),
            ("127.255.255.255", Loopback),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("169.254.0.1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("192.0.0.192", Metadata),
            ("100.100.100.200", Metadata),
            ("168.63.129.16", Metadata),
            ("100.64.0.1", Shared),
            ("100.127.255.255", Shared),
            ("192.0.0.1", Reserved),
            ("192.0.2.1", Documentation),
            ("198.51.100.1", Documentation),
            ("203.0.113.1", Documentation),
            ("198.18.0.1", Benchmark),
            ("198.19.255.255", Benchmark),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Broadcast),
            ("192.88.99.1", Reserved),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::127.0.0.1", Translated),
            ("::ffff:127.0.0.1", Translated),
            ("::ffff:8.8.8.8", Translated),
            ("::ffff:0:10.0.0.1", Translated),
            ("64:ff9b::10.0.0.1", Translated),
            ("64:ff9b:1::1", Translated),
            ("2002:a00:1::", Translated),
            ("2001::1", Translated),
            ("fd00:ec2::254", Metadata),
            ("fd00::1", Private),
            ("fc00::1", Private),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2001:2::1", Benchmark),
            ("2001:10::1", Reserved),
            ("100::1", Reserved),
            ("5f00::1", Reserved),
            ("4000::1", Reserved),
        ] {
            assert_eq!(kind(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn a_network_opens_what_it_covers_and_no_more() {
        assert!(!may(&[], "127.0.0.1") && may(&[], "8.8.8.8"));
        assert!(
            may(&["127.0.0.1"], "127.0.0.1")
                && !may(&["127.0.0.1"], "127.0.0.2")
                && !may(&["127.0.0.1"], "::1")
        );
        assert!(may(&["10.0.0.0/8"], "10.1.2.3") && !may(&["10.0.0.0/8"], "192.168.0.1"));
        assert!(may(&["fd00::/8"], "fd12::1"));
    }

    #[test]
    fn metadata_must_be_named_itself() {
        assert!(
            !may(&["169.254.0.0/16", "0.0.0.0/0"], "169.254.169.254")
                && may(&["169.254.169.254"], "169.254.169.254")
        );
        assert!(!may(&["fd00::/8"], "fd00:ec2::254") && may(&["fd00:ec2::254"], "fd00:ec2::254"));
        assert!(!may(&["64:ff9b::/96"], "64:ff9b::169.254.169.254"));
    }

    #[test]
    fn an_address_within_an_address_is_looked_at_too() {
        assert!(!may(&[], "::ffff:8.8.8.8"), "nobody needs this form");
        assert!(
            may(&["64:ff9b::/96"], "64:ff9b::8.8.8.8")
                && !may(&["64:ff9b::/96"], "64:ff9b::10.0.0.1")
        );
        assert!(
            may(&["10.0.0.0/8"], "::ffff:10.0.0.1") && !may(&["10.0.0.0/8"], "::ffff:127.0.0.1")
        );
        assert!(may(&["64:ff9b::/96", "10.0.0.0/8"], "64:ff9b::10.0.0.1"));
        assert!(!may(&["2002::/16"], "2002:7f00:1::") && may(&["2002::/16"], "2002:808:808::"));
        assert!(
            !may(&["::/0"], "64:ff9b:1:7f00:0:100::"),
            "127.0.0.1 around the byte that is left out"
        );
    }

    proptest! {
        #[test]
        fn an_ipv4_address_that_is_not_public_is_not_so_in_any_other_dress(address: u32) {
            let address = Ipv4Addr::from(address);
            let [a, b, c, d] = address.octets().map(u16::from);
            let (high, low) = ((a << 8) | b, (c << 8) | d);
            let everything_v6: IpNet = "::/0".parse().expect("a network");
            for outer in [
                address.to_ipv6_mapped(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 0),
                Ipv6Addr::new(0x2001, 0, 0x808, 0x808, 0, 0, !high, !low),
            ] {
                prop_assert!(check_address(outer.into(), &[]).is_err());
                prop_assert_eq!(check_address(outer.into(), &[everything_v6]).is_ok(), AddressKind::of(address.into()).is_none(), "{}", outer);
            }
        }
    }
}
