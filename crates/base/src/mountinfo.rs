//! Parser of mount tables (`/proc/PID/mountinfo`, see proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the file system, `8:1`.
    pub device: String,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    /// `ext4`, `fuse.sshfs`.
    pub fs_type: String,
    /// Source as the file system reports it: a device, a URL.
    pub source: String,
    /// Options of the file system, separated by commas.
    pub super_options: String,
}

/// The mounts that a process sees, in the order in which they were mounted. `process` is an id or `self`.
pub fn read(process: &str) -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(format!("/proc/{process}/mountinfo"))?))
}

/// Lines that are no mount are left out.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let (device, root, mount_point) = (fields.next()?, fields.next()?, fields.next()?);
    // A variable number of optional fields ends with a hyphen.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (fs_type, source) = (fields.next()?, fields.next()?);
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some(Mount {
        device: text(device),
        root: PathBuf::from(OsString::from_vec(unescape(root))),
        mount_point: PathBuf::from(OsString::from_vec(unescape(mount_point))),
        fs_type: text(fs_type),
        source: text(&unescape(source)),
        super_options: fields.next().map(text).unwrap_or_default(),
    })
}

/// The kernel writes blanks, tabs, newlines and backslashes in octal: `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_with_its_escapes_and_optional_fields() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            36 22 0:53 /in\\040fs /mnt/a\\134b rw,nosuid shared:1 master:2 - fuse corro://h/s\\040x rw,user_id=0\n\
            nonsense\n37 22 0:54 / /c rw\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].device.as_str(), mounts[0].fs_type.as_str()), ("8:1", "ext4"));
        let expected = Mount {
            device: "0:53".to_owned(),
            root: "/in fs".into(),
            mount_point: "/mnt/a\\b".into(),
            fs_type: "fuse".to_owned(),
            source: "corro://h/s x".to_owned(),
            super_options: "rw,user_id=0".to_owned(),
        };
        assert_eq!(mounts[1], expected);
    }

    #[test]
    fn this_process_sees_a_root() {
        assert!(read("self").expect("a table").iter().any(|mount| mount.mount_point.as_os_str() == "/"));
    }
}
