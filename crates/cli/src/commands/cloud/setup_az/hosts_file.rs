//! Host names of storage accounts in the hosts file: a block between markers that is added, replaced and removed as text. Also checks whether
//! such names resolve without it.

use std::net::{IpAddr, ToSocketAddrs};

const BEGIN: &str = "# BEGIN corro";
const END: &str = "# END corro";

/// Shell command that removes the block.
pub const REMOVE_COMMAND: &str = "sudo sed -i '/^# BEGIN corro/,/^# END corro/d'";

/// The block that maps `names` to `address`, one line per account.
pub fn block(address: IpAddr, names: &[Vec<String>]) -> String {
    let lines: String = names.iter().map(|names| format!("{address} {}\n", names.join(" "))).collect();
    format!("{BEGIN}: names of storage accounts, by 'corro cloud setup-az'\n{lines}{END}\n")
}

/// The text with this block, replacing an earlier one.
pub fn with_block(text: &str, block: &str) -> String {
    let rest = without_block(text);
    let end = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
    format!("{rest}{end}{block}")
}

/// The text without the block.
pub fn without_block(text: &str) -> String {
    let mut inside = false;
    let is_outside = |line: &&str| {
        inside |= line.starts_with(BEGIN);
        let outside = !inside;
        inside &= !line.starts_with(END);
        outside
    };
    text.split_inclusive('\n').filter(is_outside).collect()
}

/// Whether all subdomains of `host` resolve to `address`, as with a wildcard DNS record or a resolver that knows `localhost`. Tested with a name
/// that is in no hosts file.
pub fn resolves_subdomains(host: &str, address: IpAddr) -> bool {
    resolve(&format!("corro-looks.file.{host}")).contains(&address)
}

/// Addresses of a host name; empty if it does not resolve.
pub fn resolve(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_replaced_and_removed_and_nothing_else_changes() {
        let file = "127.0.0.1 localhost\n# a note\n";
        let address: IpAddr = "127.0.0.1".parse().expect("an address");
        let names = |account: &str| vec![format!("{account}.file.localhost"), format!("{account}.blob.localhost")];
        let one = block(address, &[names("a")]);
        assert!(one.contains("\n127.0.0.1 a.file.localhost a.blob.localhost\n"), "{one}");
        let two = block(address, &[names("a"), names("b")]);
        let written = with_block(file, &one);
        assert_eq!(written, format!("{file}{one}"));
        assert_eq!(with_block(&written, &one), written);
        let later = format!("{}10.0.0.1 other\n", with_block(&written, &two));
        assert_eq!(without_block(&later), format!("{file}10.0.0.1 other\n"));
        assert_eq!(without_block(file), file);
        assert_eq!(with_block("no end", &one), format!("no end\n{one}"));
    }
}
