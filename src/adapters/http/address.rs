//! To which address a request goes: looked up once, checked, and kept (F96). What is checked is what the name came to, so a
//! number in another base and a name that means this machine are caught like the address itself; and because the connection
//! is made to the checked address, a name that means something else a moment later changes nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

/// How names become addresses.
pub(super) type Names = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// As this machine does it.
pub(super) fn of_this_machine(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Anywhere in the world.
    Outside,
    /// This machine, or a network of its owner: only where the contract means it.
    Inside,
    /// Link-local, the metadata service of a cloud, or no single machine: never.
    Never,
}

/// Refuses what must not be called: all addresses must be good, for any of them may be used.
pub(super) fn check(host: &str, addresses: &[SocketAddr], inside: bool) -> Result<(), String> {
    for address in addresses {
        let ip = address.ip();
        match reach(ip) {
            Reach::Outside => {}
            Reach::Inside if inside => {}
            Reach::Inside => {
                return Err(format!(
                    "`{host}` is {ip}, inside this machine's network, and the contract does not say `inside: true`"
                ));
            }
            Reach::Never => return Err(format!("`{host}` is {ip}, which no contract may call")),
        }
    }
    Ok(())
}

pub(super) fn reach(ip: IpAddr) -> Reach {
    match ip {
        IpAddr::V4(ip) => reach_v4(ip),
        IpAddr::V6(ip) => reach_v6(ip),
    }
}

fn reach_v4(ip: Ipv4Addr) -> Reach {
    match ip.octets() {
        // "This network", which the kernel takes for this machine; link-local, where metadata services are; the one that
        // has its metadata service elsewhere; protocol assignments; multicast, reserved, broadcast.
        [0 | 224..=255, ..] | [169, 254, ..] | [100, 100, 100, 200] | [192, 0, 0, _] => Reach::Never,
        [127 | 10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] | [198, 18 | 19, ..] => {
            Reach::Inside
        }
        // Written in documentation alone.
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Reach::Never,
        _ => Reach::Outside,
    }
}

fn reach_v6(ip: Ipv6Addr) -> Reach {
    if let Some(within) = embedded(ip) {
        return reach_v4(within);
    }
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Inside,
        // The metadata service of a cloud, among private addresses.
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] => Reach::Never,
        [first, ..] if first & 0xfe00 == 0xfc00 => Reach::Inside,
        // Unspecified, link-local, site-local, multicast, tunnels that hide an address, documentation.
        [0x2001, 0 | 0x0db8, ..] => Reach::Never,
        [first, ..] if first & 0xe000 == 0x2000 => Reach::Outside,
        _ => Reach::Never,
    }
}

/// The IPv4 address within: mapped, compatible, translated (NAT64), 6to4.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        Ipv4Addr::new(a, b, c, d)
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(of(high, low)),
        [0x0064, 0xff9b, .., high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f96_where_an_address_lies() {
        for (text, wanted) in [
            ("93.184.216.34", Reach::Outside),
            ("2606:2800:220:1::1", Reach::Outside),
            ("127.0.0.1", Reach::Inside),
            ("127.9.9.9", Reach::Inside),
            ("10.1.2.3", Reach::Inside),
            ("172.16.0.1", Reach::Inside),
            ("172.32.0.1", Reach::Outside),
            ("192.168.1.1", Reach::Inside),
            ("100.64.0.1", Reach::Inside),
            ("100.100.100.200", Reach::Never),
            ("0.0.0.0", Reach::Never),
            ("169.254.169.254", Reach::Never),
            ("224.0.0.1", Reach::Never),
            ("255.255.255.255", Reach::Never),
            ("::", Reach::Never),
            ("::1", Reach::Inside),
            ("::ffff:127.0.0.1", Reach::Inside),
            ("::ffff:169.254.169.254", Reach::Never),
            ("::ffff:93.184.216.34", Reach::Outside),
            ("::127.0.0.1", Reach::Inside),
            ("64:ff9b::a9fe:a9fe", Reach::Never),
            ("2002:7f00:1::", Reach::Inside),
            ("2001:0:1::", Reach::Never),
            ("fe80::1", Reach::Never),
            ("fec0::1", Reach::Never),
            ("fd12::1", Reach::Inside),
            ("fd00:ec2::254", Reach::Never),
            ("ff02::1", Reach::Never),
        ] {
            assert_eq!(reach(text.parse().unwrap()), wanted, "{text}");
        }
    }

    #[test]
    fn f96_one_bad_address_among_several_is_enough() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 80);
        assert!(check("h", &[at("93.184.216.34"), at("10.0.0.1")], false).is_err());
        assert!(check("h", &[at("93.184.216.34"), at("10.0.0.1")], true).is_ok());
        assert!(check("h", &[at("10.0.0.1"), at("169.254.169.254")], true).is_err());
    }

    #[test]
    fn f96_numbers_in_other_bases_are_the_same_addresses() {
        for host in ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"] {
            let found = of_this_machine(host, 80).unwrap();
            assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty(), "{host}: {found:?}");
            assert!(check(host, &found, false).is_err(), "{host}");
        }
    }
}
