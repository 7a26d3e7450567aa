//! Parts of the benchmark `files`: `requests` builds and signs requests, `load` sends them over many connections, `sdk` drives
//! Microsoft's own client (`sdk.py`), `turns` records the results per round. The peer nginx is in `peers`.

pub mod load;
pub mod requests;
pub mod sdk;
pub mod turns;
