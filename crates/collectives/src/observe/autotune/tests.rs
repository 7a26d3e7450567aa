//! Tests of autotuning on synthetic jobs with known optimal parameters.

use super::*;

const INITIAL: Parameters = Parameters {
    fusion_threshold: 128 << 20,
    cycle_time: Duration::from_millis(1),
    hierarchical_allreduce: false,
    hierarchical_allgather: false,
    torus_allreduce: false,
    cache_enabled: true,
};

fn config() -> Config {
    Config {
        warmup_samples: 3,
        steps_per_sample: 10,
        max_samples: 20,
        noise: 0.8,
        tunes_fusion_threshold: true,
        tunes_cycle_time: true,
        bool_parameters: vec![BoolParameter::HierarchicalAllreduce, BoolParameter::CacheEnabled],
        seed: 1,
    }
}

/// Synthetic score in bytes per microsecond: maximum at 40 MiB and 10 ms, higher with hierarchical allreduce and with the cache.
fn surface(parameters: Parameters) -> f64 {
    let mebibytes = parameters.fusion_threshold as f64 / (1 << 20) as f64;
    let milliseconds = parameters.cycle_time.as_secs_f64() * 1000.0;
    let distance = ((mebibytes - 40.0) / 30.0).powi(2) + (milliseconds / 10.0).log10().powi(2);
    let factor = |better: bool| if better { 1.2 } else { 1.0 };
    (1000.0 * (-distance).exp() + 10.0) * factor(parameters.hierarchical_allreduce) * factor(parameters.cache_enabled)
}

struct Run {
    last: Parameters,
    tried: Vec<Parameters>,
    log: String,
}

/// Simulates steps of three tensors until tuning is done. `jitter` is the relative variation of step times.
fn run(config: Config, jitter: f64) -> Run {
    let mut log = Vec::new();
    let (mut last, mut tried) = (INITIAL, vec![INITIAL]);
    let mut autotune = Autotune::new(config, INITIAL, Some(&mut log));
    let mut now = Instant::now();
    let mut n_steps = 0u64;
    while !autotune.is_done() {
        n_steps += 1;
        assert!(n_steps < 100_000, "it never ends");
        let wobble = 1.0 + jitter * ((n_steps * 7919 % 101) as f64 / 50.0 - 1.0);
        for names in [&["a", "b"][..], &["c"]] {
            let n_bytes = names.len() as u64 * 1_000_000;
            now += Duration::from_secs_f64(n_bytes as f64 / surface(last) * wobble / 1e6);
            if let Some(changed) = autotune.observe(names, n_bytes, now) {
                last = changed;
                tried.push(changed);
            }
        }
    }
    assert_eq!(autotune.observe(&["a"], 1, now), None, "it is over");
    Run { last, tried, log: String::from_utf8(log).unwrap() }
}

#[test]
fn tuning_ends_near_the_optimum() {
    let best = surface(Parameters {
        fusion_threshold: 40 << 20,
        cycle_time: Duration::from_millis(10),
        hierarchical_allreduce: true,
        ..INITIAL
    });
    for seed in 0..5 {
        for jitter in [0.0, 0.3] {
            let last = run(Config { seed, ..config() }, jitter).last;
            let share = surface(last) / best;
            assert!(share > 0.9, "seed {seed}, jitter {jitter}: {share} with {last:?}");
            assert!(last.hierarchical_allreduce && last.cache_enabled);
        }
    }
}

#[test]
fn the_start_points_come_first() {
    let tried = run(config(), 0.0).tried;
    let seen: Vec<(usize, u128)> =
        tried[1..5].iter().map(|p| (p.fusion_threshold >> 20, p.cycle_time.as_millis())).collect();
    assert_eq!(seen, [(4, 5), (32, 50), (16, 25), (8, 10)]);
    let in_range = |p: &Parameters| {
        p.fusion_threshold <= 64 << 20
            && (Duration::from_millis(1)..=Duration::from_millis(100)).contains(&p.cycle_time)
    };
    assert!(tried[1..].iter().all(in_range), "{tried:?}");
}

#[test]
fn the_log_ends_with_the_best_parameters() {
    let run = run(config(), 0.3);
    let mut lines = run.log.lines();
    assert_eq!(
        lines.next(),
        Some(
            "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score"
        )
    );
    let rows: Vec<Vec<f64>> = lines.map(|line| line.split(',').map(|field| field.parse().unwrap()).collect()).collect();
    assert_eq!(rows.len(), 1 + 20 + 2 + 1, "the beginning, the search, the choices, the best");
    let last = rows.last().unwrap();
    let highest = rows.iter().map(|row| row[6]).fold(0.0, f64::max);
    assert_eq!(last[6], highest);
    assert_eq!((last[5] as usize, last[0] == 1.0), (run.last.fusion_threshold, run.last.hierarchical_allreduce));
}

#[test]
fn the_same_seed_gives_the_same_parameters() {
    assert_eq!(run(config(), 0.3).tried, run(config(), 0.3).tried);
    assert_ne!(run(config(), 0.3).tried, run(Config { seed: 2, ..config() }, 0.3).tried);
}

#[test]
fn fixed_parameters_are_not_tuned() {
    let tried = run(Config { tunes_fusion_threshold: false, ..config() }, 0.0).tried;
    assert!(tried.iter().all(|parameters| parameters.fusion_threshold == INITIAL.fusion_threshold));
    assert!(tried.iter().any(|parameters| parameters.cycle_time != INITIAL.cycle_time));
    let nothing =
        Config { tunes_fusion_threshold: false, tunes_cycle_time: false, bool_parameters: vec![], ..config() };
    let run = run(nothing, 0.0);
    assert_eq!((run.last, run.tried.len()), (INITIAL, 1));
}

#[test]
fn a_sample_is_the_median_of_five_windows_after_the_warm_up() {
    let config = Config { warmup_samples: 1, steps_per_sample: 2, ..config() };
    let mut log = Vec::new();
    let mut autotune = Autotune::new(config, INITIAL, Some(&mut log));
    let mut now = Instant::now();
    autotune.observe(&["a"], 100, now);
    // Ten windows of two steps; those after the warm-up score 100, 50, 20, 10 and 5.
    for (window, micros) in [1u64, 1, 1, 1, 1, 1, 2, 5, 10, 20].into_iter().enumerate() {
        for step in 0..2 {
            now += Duration::from_micros(micros);
            let changed = autotune.observe(&["a"], 100, now);
            assert_eq!(changed.is_some(), (window, step) == (9, 1));
        }
    }
    drop(autotune);
    let log = String::from_utf8(log).unwrap();
    assert_eq!(log.lines().nth(1), Some("0,0,0,1,1,134217728,20"));
}

#[test]
fn a_log_that_cannot_be_written_does_not_stop_tuning() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut autotune = Autotune::new(config(), INITIAL, Some(Full));
    assert_eq!(autotune.take_log_error().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    assert!(!autotune.is_done());
    assert_eq!(autotune.observe(&["a"], 1, Instant::now()), None);
}
