//! VM sizes and what a node of that size has, as a table. Names are the service's, upper case in answers.

/// What a node of some size offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmSize {
    pub name: &'static str,
    pub cores: u32,
    pub memory_gib: u32,
    pub gpus: u32,
}

const fn size(name: &'static str, cores: u32, memory_gib: u32, gpus: u32) -> VmSize {
    VmSize { name, cores, memory_gib, gpus }
}

pub const VM_SIZES: &[VmSize] = &[
    size("STANDARD_NC6", 6, 56, 1),
    size("STANDARD_NC12", 12, 112, 2),
    size("STANDARD_NC24", 24, 224, 4),
    size("STANDARD_NC24R", 24, 224, 4),
    size("STANDARD_NC6S_V2", 6, 112, 1),
    size("STANDARD_NC12S_V2", 12, 224, 2),
    size("STANDARD_NC24S_V2", 24, 448, 4),
    size("STANDARD_NC24RS_V2", 24, 448, 4),
    size("STANDARD_NC6S_V3", 6, 112, 1),
    size("STANDARD_NC12S_V3", 12, 224, 2),
    size("STANDARD_NC24S_V3", 24, 448, 4),
    size("STANDARD_NC24RS_V3", 24, 448, 4),
    size("STANDARD_ND6S", 6, 112, 1),
    size("STANDARD_ND12S", 12, 224, 2),
    size("STANDARD_ND24S", 24, 448, 4),
    size("STANDARD_ND24RS", 24, 448, 4),
    size("STANDARD_NV6", 6, 56, 1),
    size("STANDARD_NV12", 12, 112, 2),
    size("STANDARD_NV24", 24, 224, 4),
    size("STANDARD_A1", 1, 2, 0),
    size("STANDARD_A2", 2, 4, 0),
    size("STANDARD_A4", 8, 14, 0),
    size("STANDARD_D1", 1, 4, 0),
    size("STANDARD_D2", 2, 7, 0),
    size("STANDARD_D3", 4, 14, 0),
    size("STANDARD_D4", 8, 28, 0),
    size("STANDARD_D11", 2, 14, 0),
    size("STANDARD_D12", 4, 28, 0),
    size("STANDARD_D13", 8, 56, 0),
    size("STANDARD_D14", 16, 112, 0),
    size("STANDARD_D1_V2", 1, 4, 0),
    size("STANDARD_D2_V2", 2, 7, 0),
    size("STANDARD_D3_V2", 4, 14, 0),
    size("STANDARD_D4_V2", 8, 28, 0),
    size("STANDARD_D5_V2", 16, 56, 0),
    size("STANDARD_D2_V3", 2, 8, 0),
    size("STANDARD_D4_V3", 4, 16, 0),
    size("STANDARD_D8_V3", 8, 32, 0),
    size("STANDARD_D16_V3", 16, 64, 0),
    size("STANDARD_D32_V3", 32, 128, 0),
    size("STANDARD_D64_V3", 64, 256, 0),
    size("STANDARD_F1", 1, 2, 0),
    size("STANDARD_F2", 2, 4, 0),
    size("STANDARD_F4", 4, 8, 0),
    size("STANDARD_F8", 8, 16, 0),
    size("STANDARD_F16", 16, 32, 0),
];

/// Finds a size by name, in any case.
pub fn find(name: &str) -> Option<&'static VmSize> {
    VM_SIZES.iter().find(|size| size.name.eq_ignore_ascii_case(name))
}

/// The families whose cores are counted apart, in the order of the usages list.
pub const FAMILIES: [&str; 7] = ["D", "Dv2", "NC", "NCv2", "NCv3", "ND", "NV"];

impl VmSize {
    /// One of [`FAMILIES`], or `None` for a size that counts only in the total.
    pub fn family(&self) -> Option<&'static str> {
        let name = self.name.strip_prefix("STANDARD_")?;
        let (series, version) = match name.rsplit_once("_V") {
            Some((series, version)) => (series, version),
            None => (name, "1"),
        };
        let letters: String = series.chars().take_while(char::is_ascii_alphabetic).collect();
        match (letters.as_str(), version) {
            ("D", "1") => Some("D"),
            ("D", "2") => Some("Dv2"),
            ("NC", "1") => Some("NC"),
            ("NC", "2") => Some("NCv2"),
            ("NC", "3") => Some("NCv3"),
            ("ND", "1") => Some("ND"),
            ("NV", "1") => Some("NV"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tutorials_cluster_has_24_cores_and_4_gpus() {
        let nc6 = find("Standard_NC6").expect("the tutorial's size");
        assert_eq!((nc6.cores * 4, nc6.gpus * 4, nc6.name), (24, 4, "STANDARD_NC6"));
    }

    #[test]
    fn families_are_told_by_name() {
        let check = |name: &str, family: Option<&str>| assert_eq!(find(name).expect(name).family(), family, "{name}");
        check("Standard_NC6", Some("NC"));
        check("Standard_NC24rs_v3", Some("NCv3"));
        check("Standard_ND6s", Some("ND"));
        check("Standard_D1", Some("D"));
        check("Standard_D2_v2", Some("Dv2"));
        check("Standard_D2_v3", None);
        check("Standard_F1", None);
    }
}
