//! Names of storage accounts in the hosts file: one block between markers, made, replaced and taken out. Pure text in the
//! first half; the second asks this machine whether it knows such names by itself.

use std::net::{IpAddr, ToSocketAddrs};

const BEGIN: &str = "# BEGIN corro";
const END: &str = "# END corro";

/// Takes the block out, for somebody who has to do it by hand.
pub const REMOVE: &str = "sudo sed -i '/^# BEGIN corro/,/^# END corro/d'";

/// The lines that make `names` lead to `address`, a line for each account.
pub fn block(address: IpAddr, names: &[Vec<String>]) -> String {
    let lines: String = names.iter().map(|names| format!("{address} {}\n", names.join(" "))).collect();
    format!("{BEGIN}: names of storage accounts, by 'corro cloud setup-az'\n{lines}{END}\n")
}

/// With this block instead of any other of ours.
pub fn with_block(text: &str, block: &str) -> String {
    let rest = without_block(text);
    let end = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
    format!("{rest}{end}{block}")
}

pub fn without_block(text: &str) -> String {
    let mut inside = false;
    let is_kept = |line: &&str| {
        inside |= line.starts_with(BEGIN);
        let kept = !inside;
        inside &= !line.starts_with(END);
        kept
    };
    text.split_inclusive('\n').filter(is_kept).collect()
}

/// Does every name below `host` lead to the server, as with a wildcard record or a resolver that knows `localhost`? Asked
/// with a name that nobody has written down.
pub fn are_known(host: &str, address: IpAddr) -> bool {
    resolve(&format!("corro-looks.file.{host}")).contains(&address)
}

/// The addresses of a name.
pub fn resolve(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_replaced_and_taken_out_and_nothing_else_changes() {
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
