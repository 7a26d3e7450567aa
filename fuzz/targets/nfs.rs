//! The NFS port, from bytes of a connection to files on the disk: no panic, no reply to anything but a call, and no access
//! outside the file server. The driver bounds the memory.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use corro_model::GroupKey;
use corro_model::batchai::{Provisioning, ProvisioningState};
use corro_server::app::storage::exports::Exports;
use corro_server::nfs::listener::{NfsLimits, serve_connection};
use corro_server::nfs::service::Service;
use corro_server::nfs::{Vfs, export_service};
use corro_store::{FileServerRecord, Store};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first byte selects the interpretation of the rest: 0, the bytes of a connection; otherwise calls of the NFS program,
/// each a procedure, a length and arguments in which `@R` is the root's handle and `@F` a file's.
pub fn nfs(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    EXPORT.with_borrow_mut(|export| {
        let export = export.get_or_insert_with(Export::new);
        let input = if *kind == 0 { data.to_vec() } else { export.encode_calls(data) };
        let stream = RecordedStream { input, at: 0 };
        let _ = export.runtime.block_on(serve_connection(stream, export.service.clone(), None, NfsLimits::DEFAULT));
        assert_eq!(std::fs::read(&export.outside).expect("a file outside"), b"outside", "the file outside was changed");
        export.restore_files();
    });
}

thread_local! {
    static EXPORT: RefCell<Option<Export>> = const { RefCell::new(None) };
}

/// A file server's NFS service, and handles of its root and of one file.
struct Export {
    service: Arc<Service<Vfs>>,
    runtime: tokio::runtime::Runtime,
    root: Vec<u8>,
    file: Vec<u8>,
    tree: PathBuf,
    outside: PathBuf,
    _dir: tempfile::TempDir,
}

impl Export {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "outside").expect("a file");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let exports = Arc::new(Exports::open(&dir.path().join("exports"), [5; 32]).expect("a root"));
        let (key, record) = (GroupKey::new("g").workspace("w").file_server("nfs"), record());
        let (path, tree) = (exports.export_path(&key, &record), exports.directory(&key, &record).expect("a directory"));
        let store = Store::open(&dir.path().join("db")).expect("a store");
        runtime.block_on(async {
            let put = store.commit(move |txn| {
                txn.put(key, record);
                Ok::<_, corro_model::ApiError>(())
            });
            put.await.expect("the record is committed");
        });
        let service = Arc::new(export_service(exports, store, [6; 32], 2049));
        std::fs::write(tree.join("file"), [b'x'; 100]).expect("a file");
        let (root, file) = runtime.block_on(async {
            // MNT, then LOOKUP: handles follow the status in both replies.
            let mount = service.answer(&encode_call(100_005, 1, &opaque(path.as_bytes()))).await.expect("a reply");
            let root = handle_at(&mount.bytes, 32);
            let args = [opaque(&root), opaque(b"file")].concat();
            let lookup = service.answer(&encode_call(100_003, 3, &args)).await.expect("a reply");
            (root, handle_at(&lookup.bytes, 32))
        });
        Export { service, runtime, root, file, tree, outside, _dir: dir }
    }

    fn encode_calls(&self, mut data: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        while let [procedure, length, rest @ ..] = data {
            let (args, rest) = rest.split_at(usize::from(*length).min(rest.len()));
            let record = encode_call(100_003, u32::from(*procedure), &self.insert_handles(args));
            stream.extend((record.len() as u32 | 1 << 31).to_be_bytes());
            stream.extend(record);
            data = rest;
        }
        stream
    }

    fn insert_handles(&self, mut args: &[u8]) -> Vec<u8> {
        let mut args_with_handles = Vec::new();
        while let Some((first, rest)) = args.split_first() {
            match args.get(..2) {
                Some(b"@R") => args_with_handles.extend(opaque(&self.root)),
                Some(b"@F") => args_with_handles.extend(opaque(&self.file)),
                _ => {
                    args_with_handles.push(*first);
                    args = rest;
                    continue;
                }
            }
            args = &args[2..];
        }
        args_with_handles
    }

    /// Removes files that inputs created.
    fn restore_files(&mut self) {
        let names: Vec<PathBuf> =
            std::fs::read_dir(&self.tree).expect("a directory").map(|entry| entry.expect("readable").path()).collect();
        let is_changed = names != [self.tree.join("file")];
        for path in names.iter().filter(|path| is_changed && **path != self.tree.join("file")) {
            let removed = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            removed.expect("removed");
        }
        if !names.contains(&self.tree.join("file")) {
            std::fs::write(self.tree.join("file"), [b'x'; 100]).expect("a file");
        }
    }
}

fn record() -> FileServerRecord {
    let spec = serde_json::json!({"vmSize": "D1", "sshConfiguration": {"userAccountSettings": {"adminUserName": "a"}},
        "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"}});
    FileServerRecord {
        name: "nfs".to_owned(),
        spec: serde_json::from_value(spec).expect("a literal"),
        fingerprint: String::new(),
        password_mark: None,
        provisioning: Provisioning::new(ProvisioningState::Succeeded, std::time::SystemTime::UNIX_EPOCH.into()),
    }
}

fn encode_call(program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let header = [7, 0, 2, program, 3, procedure, 0, 0, 0, 0];
    let mut record: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    record.extend_from_slice(args);
    record
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut opaque = (bytes.len() as u32).to_be_bytes().to_vec();
    opaque.extend_from_slice(bytes);
    opaque.resize(4 + bytes.len().next_multiple_of(4), 0);
    opaque
}

fn handle_at(reply: &[u8], at: usize) -> Vec<u8> {
    let length = u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes")) as usize;
    reply[at + 4..at + 4 + length].to_vec()
}

/// A client with a fixed recorded input, which accepts all output.
struct RecordedStream {
    input: Vec<u8>,
    at: usize,
}

impl AsyncRead for RecordedStream {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n_bytes = buf.remaining().min(self.input.len() - self.at);
        buf.put_slice(&self.input[self.at..self.at + n_bytes]);
        self.at += n_bytes;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordedStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
