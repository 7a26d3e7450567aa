//! Metrics of the server itself for operators: request counters, the Prometheus text format, and the `/metrics` and readiness
//! rules.

pub mod gpu_metrics;
pub mod http_counters;
pub mod metrics_endpoint;
pub mod prometheus_text;
pub mod server_status;
