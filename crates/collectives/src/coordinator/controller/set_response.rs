//! Response of a whole process set to one tensor, from which each member's [`Response`] is derived. Also reconstructs the request of each
//! member, because later cache hits stand for these requests.

use std::sync::Arc;

use crate::coordinator::message::{FusionKey, Response, ResponseItem};
use crate::coordinator::request::{Kind, Request, SetGeneration, SetId};

/// Negotiated result for one tensor in one process set.
#[derive(Debug, PartialEq)]
pub struct SetResponse {
    /// Response of every member. Alltoall: without rows and with 0 as first dimension, which differ per member.
    response: Arc<Response>,
    /// Alltoall: matrix of the rows that each member (matrix row) sends to each member (column). Otherwise empty.
    send_rows: Vec<u64>,
    /// Bytes that count against the fusion threshold.
    bytes: u64,
}

impl SetResponse {
    /// Combines validated requests, each with the set rank that made it.
    pub fn from_requests(generation: SetGeneration, requests: &[(u32, &Request)], n_members: usize) -> SetResponse {
        let first = requests[0].1;
        let key = FusionKey::new(generation, first);
        let mut shape = first.shape.clone();
        let (mut rows, mut send_rows) = (Vec::new(), Vec::new());
        match first.kind {
            Kind::Allgather => {
                rows = vec![0; n_members];
                requests.iter().for_each(|(set_rank, request)| rows[*set_rank as usize] = request.shape[0]);
                shape[0] = rows.iter().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
            }
            Kind::Alltoall => {
                send_rows = vec![0; n_members * n_members];
                for (set_rank, request) in requests {
                    let row = &mut send_rows[*set_rank as usize * n_members..][..n_members];
                    row.iter_mut().zip(&request.splits).for_each(|(send, split)| *send = *split);
                }
                shape[0] = 0;
            }
            _ => {}
        }
        let elements = shape.iter().fold(1u64, |product, dimension| product.saturating_mul(*dimension));
        let bytes = elements.saturating_mul(first.dtype.size() as u64);
        SetResponse { response: Arc::new(Response { key, name: first.name.clone(), shape, rows }), send_rows, bytes }
    }

    /// Properties that tensors must share to be fused with this one.
    pub fn key(&self) -> &FusionKey {
        &self.response.key
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if the members' responses differ.
    pub fn is_per_rank(&self) -> bool {
        self.response.key.kind == Kind::Alltoall
    }

    /// Full response for one member.
    pub fn item_for(&self, set_rank: usize, id: Option<u64>) -> ResponseItem {
        if !self.is_per_rank() {
            return ResponseItem::New(self.response.clone(), id);
        }
        let n_members = self.send_rows.len().isqrt();
        let mut response = Response::clone(&self.response);
        response.rows = (0..n_members).map(|sender| self.send_rows[sender * n_members + set_rank]).collect();
        response.shape[0] = response.rows.iter().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
        ResponseItem::New(Arc::new(response), id)
    }

    /// Request that a cache hit of this member stands for.
    pub fn reconstruct_request(&self, set_rank: usize) -> Request {
        let Response { key, name, shape, rows } = &*self.response;
        let mut request = Request {
            set: SetId::GLOBAL,
            kind: key.kind,
            name: name.clone(),
            dtype: key.dtype,
            shape: shape.clone(),
            root: key.root,
            device: if key.on_cpu { -1 } else { 0 },
            prescale: key.prescale,
            postscale: key.postscale,
            op: key.op,
            splits: Vec::new(),
        };
        match key.kind {
            Kind::Allgather => request.shape[0] = rows[set_rank],
            Kind::Alltoall => {
                let n_members = self.send_rows.len().isqrt();
                request.splits = self.send_rows[set_rank * n_members..][..n_members].to_vec();
                request.shape[0] = request.splits.iter().fold(0, |sum: u64, split| sum.saturating_add(*split));
            }
            _ => {}
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, ReduceOp};

    fn request(kind: Kind, shape: &[u64], splits: &[u64]) -> Request {
        Request {
            set: SetId::GLOBAL,
            kind,
            name: "x".into(),
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            root: 0,
            device: -1,
            prescale: 1.0,
            postscale: 1.0,
            op: ReduceOp::Sum,
            splits: splits.to_vec(),
        }
    }

    #[test]
    fn an_allgather_knows_every_members_rows() {
        let [a, b] = [request(Kind::Allgather, &[2, 3], &[]), request(Kind::Allgather, &[5, 3], &[])];
        // The second member's request arrived first.
        let entry = SetResponse::from_requests(0, &[(1, &b), (0, &a)], 2);
        let ResponseItem::New(response, None) = entry.item_for(0, None) else { panic!("in full") };
        assert_eq!((&response.rows[..], &response.shape[..]), (&[2, 5][..], &[7, 3][..]));
        assert_eq!(entry.bytes(), 7 * 3 * 4);
        assert_eq!([entry.reconstruct_request(0), entry.reconstruct_request(1)], [a, b]);
    }

    #[test]
    fn an_alltoall_tells_each_what_it_receives() {
        let [a, b] = [request(Kind::Alltoall, &[3, 2], &[1, 2]), request(Kind::Alltoall, &[7, 2], &[3, 4])];
        let entry = SetResponse::from_requests(0, &[(0, &a), (1, &b)], 2);
        for (set_rank, rows) in [(0, [1, 3]), (1, [2, 4])] {
            let ResponseItem::New(response, Some(9)) = entry.item_for(set_rank, Some(9)) else { panic!("in full") };
            assert_eq!((&response.rows[..], response.shape[0]), (&rows[..], rows.iter().sum()));
        }
        assert_eq!([entry.reconstruct_request(0), entry.reconstruct_request(1)], [a, b]);
    }

    #[test]
    fn sizes_beyond_all_bounds_do_not_wrap() {
        let huge = request(Kind::Allreduce, &[u64::MAX, 3], &[]);
        assert_eq!(SetResponse::from_requests(0, &[(0, &huge)], 1).bytes(), u64::MAX);
    }
}
