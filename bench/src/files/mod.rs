//! Parts of the benchmark `files`: `requests` builds and signs requests, `load` sends them over many connections, `sdk` drives
//! Microsoft's own client (`sdk.py`), `round_rates` records the results per round. The peer nginx is in `peers`.

pub mod load;
pub mod requests;
pub mod round_rates;
pub mod sdk;
