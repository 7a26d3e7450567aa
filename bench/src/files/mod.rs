//! The parts of the benchmark `files`. `requests` makes what is sent, `load` sends it over many connections, `sdk` drives Microsoft's own client
//! (`sdk.py`), `turns` keeps what everybody did round by round. nginx, the peer, is in `peers`.

pub mod load;
pub mod requests;
pub mod sdk;
pub mod turns;
