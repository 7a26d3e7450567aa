//! What the coordinator remembers about one tensor that all ranks agreed on: enough to perform it again, and to say what each
//! rank had asked for. Made by the tally, kept by its cache.

use std::sync::Arc;

use super::message::{Agreed, Area, Item, Kind, Request, SetId, Terms};

#[derive(Debug, PartialEq)]
pub struct Entry {
    /// As told to every rank. Alltoall: shape without rows, told to each rank with its own.
    agreed: Arc<Agreed>,
    /// Alltoall: rows that each member (by row of this table) sends to each member. Otherwise empty.
    sends: Vec<u64>,
    /// What counts against the fusion threshold.
    bytes: u64,
}

impl Entry {
    /// `requests` with the place in the set of who made them; they fit together.
    pub fn of(area: Area, requests: &[(u32, &Request)], n_members: usize) -> Entry {
        let first = requests[0].1;
        let terms = Terms::of(area, first);
        let mut shape = first.shape.clone();
        let (mut rows, mut sends) = (Vec::new(), Vec::new());
        match first.kind {
            Kind::Allgather => {
                rows = vec![0; n_members];
                requests.iter().for_each(|(place, request)| rows[*place as usize] = request.shape[0]);
                shape[0] = rows.iter().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
            }
            Kind::Alltoall => {
                sends = vec![0; n_members * n_members];
                for (place, request) in requests {
                    let row = &mut sends[*place as usize * n_members..][..n_members];
                    row.iter_mut().zip(&request.splits).for_each(|(send, split)| *send = *split);
                }
                shape[0] = 0;
            }
            _ => {}
        }
        let elements = shape.iter().fold(1u64, |product, dimension| product.saturating_mul(*dimension));
        let bytes = elements.saturating_mul(first.dtype.size() as u64);
        Entry { agreed: Arc::new(Agreed { terms, name: first.name.clone(), shape, rows }), sends, bytes }
    }

    pub fn terms(&self) -> &Terms {
        &self.agreed.terms
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether ranks are told different things about it.
    pub fn is_personal(&self) -> bool {
        self.agreed.terms.kind == Kind::Alltoall
    }

    /// As it is told to one member in full.
    pub fn item_for(&self, place: usize, id: Option<u64>) -> Item {
        if !self.is_personal() {
            return Item::New(self.agreed.clone(), id);
        }
        let n_members = self.sends.len().isqrt();
        let mut agreed = Agreed::clone(&self.agreed);
        agreed.rows = (0..n_members).map(|sender| self.sends[sender * n_members + place]).collect();
        agreed.shape[0] = agreed.rows.iter().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
        Item::New(Arc::new(agreed), id)
    }

    /// What a member asked for that now only says "as before".
    pub fn request_of(&self, place: usize) -> Request {
        let Agreed { terms, name, shape, rows } = &*self.agreed;
        let mut request = Request {
            set: SetId::GLOBAL,
            kind: terms.kind,
            name: name.clone(),
            dtype: terms.dtype,
            shape: shape.clone(),
            root: terms.root,
            device: if terms.on_cpu { -1 } else { 0 },
            prescale: terms.prescale,
            postscale: terms.postscale,
            op: terms.op,
            splits: Vec::new(),
        };
        match terms.kind {
            Kind::Allgather => request.shape[0] = rows[place],
            Kind::Alltoall => {
                let n_members = self.sends.len().isqrt();
                request.splits = self.sends[place * n_members..][..n_members].to_vec();
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
        // The second member asked first.
        let entry = Entry::of(0, &[(1, &b), (0, &a)], 2);
        let Item::New(agreed, None) = entry.item_for(0, None) else { panic!("in full") };
        assert_eq!((&agreed.rows[..], &agreed.shape[..]), (&[2, 5][..], &[7, 3][..]));
        assert_eq!(entry.bytes(), 7 * 3 * 4);
        assert_eq!([entry.request_of(0), entry.request_of(1)], [a, b]);
    }

    #[test]
    fn an_alltoall_tells_each_what_it_receives() {
        let [a, b] = [request(Kind::Alltoall, &[3, 2], &[1, 2]), request(Kind::Alltoall, &[7, 2], &[3, 4])];
        let entry = Entry::of(0, &[(0, &a), (1, &b)], 2);
        for (place, rows) in [(0, [1, 3]), (1, [2, 4])] {
            let Item::New(agreed, Some(9)) = entry.item_for(place, Some(9)) else { panic!("in full") };
            assert_eq!((&agreed.rows[..], agreed.shape[0]), (&rows[..], rows.iter().sum()));
        }
        assert_eq!([entry.request_of(0), entry.request_of(1)], [a, b]);
    }

    #[test]
    fn sizes_beyond_all_bounds_do_not_wrap() {
        let huge = request(Kind::Allreduce, &[u64::MAX, 3], &[]);
        assert_eq!(Entry::of(0, &[(0, &huge)], 1).bytes(), u64::MAX);
    }
}
