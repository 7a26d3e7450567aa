//! GPU counters as lines of a table: those of the job's GPUs. Pure.

use corro_model::gpu::GpuReading;

/// Header line of the GPU table.
pub const HEADER: &str = "time,gpu,utilization_percent,memory_used_mib,memory_total_mib,power_watts,temperature_celsius,\
                          ecc_errors_uncorrected\n";

/// Lines of the table, one for each GPU. A value that is not known is empty.
pub fn lines(time: &str, readings: &[GpuReading]) -> String {
    readings.iter().map(|reading| line(time, reading)).collect()
}

fn line(time: &str, reading: &GpuReading) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let values = [
        text(reading.utilization_percent),
        text(reading.memory_used_bytes.map(mib)),
        text(reading.memory_total_bytes.map(mib)),
        text(reading.power_watts),
        text(reading.temperature_celsius),
        text(reading.ecc_errors),
    ];
    format!("{time},{},{}\n", reading.gpu, values.join(","))
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_has_its_line() {
        let all = GpuReading {
            utilization_percent: Some(97),
            memory_used_bytes: Some(1 << 30),
            memory_total_bytes: Some(80 << 30),
            power_watts: Some(312.4),
            temperature_celsius: Some(61),
            ecc_errors: Some(0),
            ..GpuReading::default()
        };
        let lost = GpuReading { gpu: 1, memory_total_bytes: Some(80 << 30), lost: true, ..GpuReading::default() };
        let text = lines("T", &[all, lost]);
        assert_eq!(text, "T,0,97,1024,81920,312.4,61,0\nT,1,,,81920,,,\n");
        let columns = HEADER.trim_end().split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() == columns));
    }
}
