//! Table of VM sizes and their resources. Names are the service's, in upper case in responses.

/// Resources of a node of one VM size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmSize {
    pub name: &'static str,
    pub cores: u32,
    /// Rounded to whole GiB.
    pub memory_gib: u32,
    pub gpus: u32,
}

const fn size(name: &'static str, cores: u32, memory_gib: u32, gpus: u32) -> VmSize {
    VmSize { name, cores, memory_gib, gpus }
}

/// The service's sizes of 2018, except A0 and the premium storage sizes (DS, DSv2, GS), which it did not accept.
pub const VM_SIZES: &[VmSize] = &[
    // A: general purpose, memory optimized (5-7), compute intensive (8-11)
    size("STANDARD_A1", 1, 2, 0),
    size("STANDARD_A2", 2, 4, 0),
    size("STANDARD_A3", 4, 7, 0),
    size("STANDARD_A4", 8, 14, 0),
    size("STANDARD_A5", 2, 14, 0),
    size("STANDARD_A6", 4, 28, 0),
    size("STANDARD_A7", 8, 56, 0),
    size("STANDARD_A8", 8, 56, 0),
    size("STANDARD_A9", 16, 112, 0),
    size("STANDARD_A10", 8, 56, 0),
    size("STANDARD_A11", 16, 112, 0),
    // Av2
    size("STANDARD_A1_V2", 1, 2, 0),
    size("STANDARD_A2_V2", 2, 4, 0),
    size("STANDARD_A4_V2", 4, 8, 0),
    size("STANDARD_A8_V2", 8, 16, 0),
    size("STANDARD_A2M_V2", 2, 16, 0),
    size("STANDARD_A4M_V2", 4, 32, 0),
    size("STANDARD_A8M_V2", 8, 64, 0),
    // B
    size("STANDARD_B1S", 1, 1, 0),
    size("STANDARD_B1MS", 1, 2, 0),
    size("STANDARD_B2S", 2, 4, 0),
    size("STANDARD_B2MS", 2, 8, 0),
    size("STANDARD_B4MS", 4, 16, 0),
    size("STANDARD_B8MS", 8, 32, 0),
    // D
    size("STANDARD_D1", 1, 4, 0),
    size("STANDARD_D2", 2, 7, 0),
    size("STANDARD_D3", 4, 14, 0),
    size("STANDARD_D4", 8, 28, 0),
    size("STANDARD_D11", 2, 14, 0),
    size("STANDARD_D12", 4, 28, 0),
    size("STANDARD_D13", 8, 56, 0),
    size("STANDARD_D14", 16, 112, 0),
    // Dv2
    size("STANDARD_D1_V2", 1, 4, 0),
    size("STANDARD_D2_V2", 2, 7, 0),
    size("STANDARD_D3_V2", 4, 14, 0),
    size("STANDARD_D4_V2", 8, 28, 0),
    size("STANDARD_D5_V2", 16, 56, 0),
    size("STANDARD_D11_V2", 2, 14, 0),
    size("STANDARD_D12_V2", 4, 28, 0),
    size("STANDARD_D13_V2", 8, 56, 0),
    size("STANDARD_D14_V2", 16, 112, 0),
    size("STANDARD_D15_V2", 20, 140, 0),
    // Dv3
    size("STANDARD_D2_V3", 2, 8, 0),
    size("STANDARD_D4_V3", 4, 16, 0),
    size("STANDARD_D8_V3", 8, 32, 0),
    size("STANDARD_D16_V3", 16, 64, 0),
    size("STANDARD_D32_V3", 32, 128, 0),
    size("STANDARD_D64_V3", 64, 256, 0),
    size("STANDARD_D2S_V3", 2, 8, 0),
    size("STANDARD_D4S_V3", 4, 16, 0),
    size("STANDARD_D8S_V3", 8, 32, 0),
    size("STANDARD_D16S_V3", 16, 64, 0),
    size("STANDARD_D32S_V3", 32, 128, 0),
    size("STANDARD_D64S_V3", 64, 256, 0),
    // Ev3
    size("STANDARD_E2_V3", 2, 16, 0),
    size("STANDARD_E4_V3", 4, 32, 0),
    size("STANDARD_E8_V3", 8, 64, 0),
    size("STANDARD_E16_V3", 16, 128, 0),
    size("STANDARD_E20_V3", 20, 160, 0),
    size("STANDARD_E32_V3", 32, 256, 0),
    size("STANDARD_E64_V3", 64, 432, 0),
    size("STANDARD_E64I_V3", 64, 432, 0),
    size("STANDARD_E2S_V3", 2, 16, 0),
    size("STANDARD_E4S_V3", 4, 32, 0),
    size("STANDARD_E8S_V3", 8, 64, 0),
    size("STANDARD_E16S_V3", 16, 128, 0),
    size("STANDARD_E20S_V3", 20, 160, 0),
    size("STANDARD_E32S_V3", 32, 256, 0),
    size("STANDARD_E64S_V3", 64, 432, 0),
    size("STANDARD_E64IS_V3", 64, 432, 0),
    // F
    size("STANDARD_F1", 1, 2, 0),
    size("STANDARD_F2", 2, 4, 0),
    size("STANDARD_F4", 4, 8, 0),
    size("STANDARD_F8", 8, 16, 0),
    size("STANDARD_F16", 16, 32, 0),
    size("STANDARD_F1S", 1, 2, 0),
    size("STANDARD_F2S", 2, 4, 0),
    size("STANDARD_F4S", 4, 8, 0),
    size("STANDARD_F8S", 8, 16, 0),
    size("STANDARD_F16S", 16, 32, 0),
    // Fsv2
    size("STANDARD_F2S_V2", 2, 4, 0),
    size("STANDARD_F4S_V2", 4, 8, 0),
    size("STANDARD_F8S_V2", 8, 16, 0),
    size("STANDARD_F16S_V2", 16, 32, 0),
    size("STANDARD_F32S_V2", 32, 64, 0),
    size("STANDARD_F64S_V2", 64, 128, 0),
    size("STANDARD_F72S_V2", 72, 144, 0),
    // G
    size("STANDARD_G1", 2, 28, 0),
    size("STANDARD_G2", 4, 56, 0),
    size("STANDARD_G3", 8, 112, 0),
    size("STANDARD_G4", 16, 224, 0),
    size("STANDARD_G5", 32, 448, 0),
    // H
    size("STANDARD_H8", 8, 56, 0),
    size("STANDARD_H16", 16, 112, 0),
    size("STANDARD_H8M", 8, 112, 0),
    size("STANDARD_H16M", 16, 224, 0),
    size("STANDARD_H16R", 16, 112, 0),
    size("STANDARD_H16MR", 16, 224, 0),
    // L
    size("STANDARD_L4S", 4, 32, 0),
    size("STANDARD_L8S", 8, 64, 0),
    size("STANDARD_L16S", 16, 128, 0),
    size("STANDARD_L32S", 32, 256, 0),
    // M
    size("STANDARD_M8MS", 8, 219, 0),
    size("STANDARD_M16MS", 16, 438, 0),
    size("STANDARD_M32TS", 32, 192, 0),
    size("STANDARD_M32LS", 32, 256, 0),
    size("STANDARD_M32MS", 32, 875, 0),
    size("STANDARD_M64", 64, 1024, 0),
    size("STANDARD_M64M", 64, 1792, 0),
    size("STANDARD_M64S", 64, 1024, 0),
    size("STANDARD_M64LS", 64, 512, 0),
    size("STANDARD_M64MS", 64, 1792, 0),
    size("STANDARD_M128", 128, 2048, 0),
    size("STANDARD_M128M", 128, 3892, 0),
    size("STANDARD_M128S", 128, 2048, 0),
    size("STANDARD_M128MS", 128, 3892, 0),
    // NC
    size("STANDARD_NC6", 6, 56, 1),
    size("STANDARD_NC12", 12, 112, 2),
    size("STANDARD_NC24", 24, 224, 4),
    size("STANDARD_NC24R", 24, 224, 4),
    // NCv2
    size("STANDARD_NC6S_V2", 6, 112, 1),
    size("STANDARD_NC12S_V2", 12, 224, 2),
    size("STANDARD_NC24S_V2", 24, 448, 4),
    size("STANDARD_NC24RS_V2", 24, 448, 4),
    // NCv3
    size("STANDARD_NC6S_V3", 6, 112, 1),
    size("STANDARD_NC12S_V3", 12, 224, 2),
    size("STANDARD_NC24S_V3", 24, 448, 4),
    size("STANDARD_NC24RS_V3", 24, 448, 4),
    // ND
    size("STANDARD_ND6S", 6, 112, 1),
    size("STANDARD_ND12S", 12, 224, 2),
    size("STANDARD_ND24S", 24, 448, 4),
    size("STANDARD_ND24RS", 24, 448, 4),
    // NV
    size("STANDARD_NV6", 6, 56, 1),
    size("STANDARD_NV12", 12, 112, 2),
    size("STANDARD_NV24", 24, 224, 4),
];

/// Finds a size by name, without regard to case.
pub fn find(name: &str) -> Option<&'static VmSize> {
    VM_SIZES.iter().find(|size| size.name.eq_ignore_ascii_case(name))
}

/// Whether this is a size that the service knew but did not accept for clusters: A0, and the premium storage sizes.
pub fn is_refused(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_premium =
        |series: &str| name.strip_prefix(series).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    name == "STANDARD_A0" || is_premium("STANDARD_DS") || is_premium("STANDARD_GS")
}

/// VM families with their own core quota, in the order of the usages list.
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
    fn every_family_of_2018_is_there_but_for_what_the_service_refused() {
        let check = |name: &str, expected: Option<(u32, u32, u32)>| {
            let found = find(&format!("Standard_{name}")).map(|size| (size.cores, size.memory_gib, size.gpus));
            assert_eq!(found, expected, "{name}");
        };
        check("D11_v2", Some((2, 14, 0)));
        check("D12_v2", Some((4, 28, 0)));
        check("D15_v2", Some((20, 140, 0)));
        check("A3", Some((4, 7, 0)));
        check("A5", Some((2, 14, 0)));
        check("A8", Some((8, 56, 0)));
        check("A1_v2", Some((1, 2, 0)));
        check("B1s", Some((1, 1, 0)));
        check("E2_v3", Some((2, 16, 0)));
        check("F2s_v2", Some((2, 4, 0)));
        check("G1", Some((2, 28, 0)));
        check("H8", Some((8, 56, 0)));
        check("L4s", Some((4, 32, 0)));
        check("M64s", Some((64, 1024, 0)));
        check("NC24rs_v3", Some((24, 448, 4)));
        check("ND6s", Some((6, 112, 1)));
        check("NV24", Some((24, 224, 4)));
        for refused in ["A0", "DS2", "DS2_v2", "DS14-8_v2", "GS1"] {
            check(refused, None);
            assert!(is_refused(&format!("Standard_{refused}")), "{refused}");
        }
        assert!(!is_refused("Standard_Nonsense") && VM_SIZES.iter().all(|size| !is_refused(size.name)));
    }

    #[test]
    fn names_are_written_once_in_upper_case_and_nothing_is_empty() {
        let mut names = std::collections::BTreeSet::new();
        for size in VM_SIZES {
            assert!(names.insert(size.name) && size.name == size.name.to_uppercase(), "{}", size.name);
            assert!(size.cores > 0 && size.memory_gib > 0, "{}", size.name);
            assert_eq!(size.gpus > 0, size.name.starts_with("STANDARD_N"), "{}", size.name);
        }
    }

    #[test]
    fn families_follow_from_names() {
        let check = |name: &str, family: Option<&str>| assert_eq!(find(name).expect(name).family(), family, "{name}");
        check("Standard_NC6", Some("NC"));
        check("Standard_NC24rs_v3", Some("NCv3"));
        check("Standard_ND6s", Some("ND"));
        check("Standard_D1", Some("D"));
        check("Standard_D2_v2", Some("Dv2"));
        check("Standard_D2_v3", None);
        check("Standard_F1", None);
        check("Standard_D2s_v3", None);
        check("Standard_A2m_v2", None);
    }
}
