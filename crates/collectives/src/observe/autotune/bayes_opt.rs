//! Bayesian optimisation of fusion threshold and cycle time. Deterministic for a given seed.
//!
//! The measured scores are modelled as noisy values of a Gaussian process, which has a mean and a standard deviation at every point. The next
//! point is the candidate with the largest expected improvement over the best mean.

use std::time::Duration;

use super::Parameters;

/// Point of the unit square: fusion threshold, cycle time.
type Point = [f64; 2];

/// State of the optimisation.
#[derive(Debug)]
pub struct BayesOpt {
    /// Whether fusion threshold and cycle time are tuned.
    tunes: [bool; 2],
    noise: f64,
    rng: SplitMix,
    points: Vec<Point>,
    scores: Vec<f64>,
    n_start_points_used: usize,
}

const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// Largest fusion threshold, in MiB.
const MAX_MEBIBYTES: f64 = 64.0;
/// Smallest and largest cycle time, in milliseconds.
const CYCLE_TIME_RANGE_MS: [f64; 2] = [1.0, 100.0];
/// First points to measure, in MiB and milliseconds, before the model has data.
const START_POINTS: [[f64; 2]; 4] = [[4.0, 5.0], [32.0, 50.0], [16.0, 25.0], [8.0, 10.0]];
/// Random candidates per iteration.
const N_CANDIDATES: usize = 1000;
/// Length scales of the kernel to choose from.
const LENGTH_SCALES: [f64; 4] = [0.1, 0.2, 0.4, 0.8];
/// Margin of the expected improvement, in standard deviations of the scores.
const MIN_IMPROVEMENT: f64 = 0.01;

impl BayesOpt {
    pub fn new(tunes_fusion_threshold: bool, tunes_cycle_time: bool, noise: f64, seed: u64) -> BayesOpt {
        BayesOpt {
            tunes: [tunes_fusion_threshold, tunes_cycle_time],
            noise,
            rng: SplitMix(seed),
            points: Vec::new(),
            scores: Vec::new(),
            n_start_points_used: 0,
        }
    }

    /// Adds a measurement.
    pub fn add_sample(&mut self, parameters: Parameters, score: f64) {
        self.points.push(point_of(parameters));
        self.scores.push(score);
    }

    /// Next parameters to measure: `current` with the tuned ones replaced.
    pub fn next_point(&mut self, current: Parameters) -> Parameters {
        let fixed = point_of(current);
        let point = match START_POINTS.get(self.n_start_points_used) {
            Some([mebibytes, milliseconds]) => {
                self.n_start_points_used += 1;
                [mebibytes / MAX_MEBIBYTES, unit_of_milliseconds(*milliseconds)]
            }
            None => self.maximize_expected_improvement(fixed),
        };
        let mut next = current;
        if self.tunes[0] {
            next.fusion_threshold = (point[0] * MAX_MEBIBYTES * MEBIBYTE).round() as usize;
        }
        if self.tunes[1] {
            let [least, most] = CYCLE_TIME_RANGE_MS;
            // Rounded to microseconds; more digits would be noise in the log.
            next.cycle_time = Duration::from_micros((least * (most / least).powf(point[1]) * 1000.0).round() as u64);
        }
        next
    }

    /// Candidate with the largest expected improvement.
    fn maximize_expected_improvement(&mut self, fixed: Point) -> Point {
        let gaussian_process = GaussianProcess::fit(&self.points, &self.scores, self.noise);
        let best_mean =
            self.points.iter().map(|point| gaussian_process.predict(*point).0).fold(f64::NEG_INFINITY, f64::max);
        let mut best = (f64::NEG_INFINITY, fixed);
        for _ in 0..N_CANDIDATES {
            let random = [self.rng.next_f64(), self.rng.next_f64()];
            let candidate = [0, 1].map(|axis| if self.tunes[axis] { random[axis] } else { fixed[axis] });
            let (mean, deviation) = gaussian_process.predict(candidate);
            let improvement = expected_improvement(mean - best_mean - MIN_IMPROVEMENT, deviation);
            if improvement > best.0 {
                best = (improvement, candidate);
            }
        }
        best.1
    }
}

/// Logarithmic position of a cycle time in its range: 1 to 2 ms matters as much as 50 to 100 ms.
fn unit_of_milliseconds(milliseconds: f64) -> f64 {
    let [least, most] = CYCLE_TIME_RANGE_MS;
    (milliseconds.clamp(least, most) / least).ln() / (most / least).ln()
}

fn point_of(parameters: Parameters) -> Point {
    let mebibytes = (parameters.fusion_threshold as f64 / MEBIBYTE).min(MAX_MEBIBYTES);
    [mebibytes / MAX_MEBIBYTES, unit_of_milliseconds(parameters.cycle_time.as_secs_f64() * 1000.0)]
}

/// Gaussian process conditioned on noisy values, with an RBF kernel.
struct GaussianProcess<'a> {
    points: &'a [Point],
    length_scale: f64,
    /// Rows of the Cholesky factor of the covariance matrix.
    factor: Vec<Vec<f64>>,
    /// Inverse covariance matrix times the values.
    weights: Vec<f64>,
    log_likelihood: f64,
}

impl<'a> GaussianProcess<'a> {
    /// Process with the length scale of maximum likelihood.
    fn fit(points: &'a [Point], scores: &[f64], noise: f64) -> GaussianProcess<'a> {
        let values = standardised(scores);
        let processes = LENGTH_SCALES.map(|length_scale| GaussianProcess::new(points, &values, length_scale, noise));
        let likelier = |a: &GaussianProcess, b: &GaussianProcess| a.log_likelihood.total_cmp(&b.log_likelihood);
        processes.into_iter().max_by(likelier).expect("there are lengths")
    }

    fn new(points: &'a [Point], values: &[f64], length_scale: f64, noise: f64) -> GaussianProcess<'a> {
        // Minimum noise, because coinciding points would make the matrix singular.
        let variance = (noise * noise).max(1e-6);
        let mut factor: Vec<Vec<f64>> = Vec::with_capacity(points.len());
        for (row, point) in points.iter().enumerate() {
            let mut entries = Vec::with_capacity(row + 1);
            for (column, other) in points[..=row].iter().enumerate() {
                let covariance = rbf_kernel(*point, *other, length_scale) + if row == column { variance } else { 0.0 };
                if row == column {
                    let rest: f64 = entries.iter().map(|entry: &f64| entry * entry).sum();
                    entries.push((covariance - rest).max(1e-12).sqrt());
                } else {
                    let rest: f64 = entries.iter().zip(&factor[column]).map(|(a, b)| a * b).sum();
                    entries.push((covariance - rest) / factor[column][column]);
                }
            }
            factor.push(entries);
        }
        let mut weights = solve_lower(&factor, values);
        let fit: f64 = weights.iter().map(|weight| weight * weight).sum();
        let log_determinant: f64 = factor.iter().enumerate().map(|(row, entries)| entries[row].ln()).sum();
        solve_upper(&factor, &mut weights);
        GaussianProcess { points, length_scale, factor, weights, log_likelihood: -0.5 * fit - log_determinant }
    }

    /// Mean and standard deviation at a point.
    fn predict(&self, point: Point) -> (f64, f64) {
        let covariances: Vec<f64> =
            self.points.iter().map(|known| rbf_kernel(point, *known, self.length_scale)).collect();
        let mean = covariances.iter().zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum();
        let explained: f64 = solve_lower(&self.factor, &covariances).iter().map(|part| part * part).sum();
        (mean, (1.0 - explained).max(0.0).sqrt())
    }
}

fn rbf_kernel(a: Point, b: Point, length_scale: f64) -> f64 {
    let squared: f64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
    (-0.5 * squared / (length_scale * length_scale)).exp()
}

/// Scores shifted and scaled to mean 0 and standard deviation 1.
fn standardised(scores: &[f64]) -> Vec<f64> {
    let n_scores = scores.len().max(1) as f64;
    let mean = scores.iter().sum::<f64>() / n_scores;
    let variance = scores.iter().map(|score| (score - mean) * (score - mean)).sum::<f64>() / n_scores;
    let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
    scores.iter().map(|score| (score - mean) / deviation).collect()
}

fn solve_lower(factor: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solution: Vec<f64> = Vec::with_capacity(values.len());
    for (row, entries) in factor.iter().enumerate() {
        let rest: f64 = entries.iter().zip(&solution).map(|(a, b)| a * b).sum();
        solution.push((values[row] - rest) / entries[row]);
    }
    solution
}

/// Solves the system with the factor's transpose, in place.
fn solve_upper(factor: &[Vec<f64>], values: &mut [f64]) {
    for row in (0..factor.len()).rev() {
        let rest: f64 = (row + 1..factor.len()).map(|below| factor[below][row] * values[below]).sum();
        values[row] = (values[row] - rest) / factor[row][row];
    }
}

fn expected_improvement(gain: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return gain.max(0.0);
    }
    let z = gain / deviation;
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    gain * normal_cdf(z) + deviation * density
}

/// Standard normal distribution function, accurate to seven digits (Abramowitz and Stegun 26.2.17).
fn normal_cdf(z: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let above = polynomial * (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z >= 0.0 { 1.0 - above } else { above }
}

/// SplitMix64 random number generator.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    /// Uniform in [0, 1).
    fn next_f64(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_cdf_matches_tables() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1)] {
            assert!((normal_cdf(z) - expected).abs() < 1e-6, "{z}: {}", normal_cdf(z));
        }
    }

    #[test]
    fn without_noise_the_process_interpolates_its_values() {
        let points = [[0.0, 0.0], [0.5, 0.5], [1.0, 0.2]];
        let gaussian_process = GaussianProcess::new(&points, &[1.0, -1.0, 0.5], 0.4, 0.0);
        for (point, value) in points.into_iter().zip([1.0, -1.0, 0.5]) {
            let (mean, deviation) = gaussian_process.predict(point);
            assert!((mean - value).abs() < 1e-4 && deviation < 0.01, "{point:?}: {mean} {deviation}");
        }
        assert!(gaussian_process.predict([0.0, 1.0]).1 > 0.5, "far from all of them it is not sure");
    }

    #[test]
    fn expected_improvement_grows_with_mean_and_deviation() {
        assert!(expected_improvement(0.5, 0.1) > expected_improvement(0.1, 0.1));
        assert!(expected_improvement(-0.5, 1.0) > expected_improvement(-0.5, 0.1));
        assert_eq!(expected_improvement(-0.5, 0.0), 0.0);
    }
}
