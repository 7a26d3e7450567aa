//! Pseudo-terminal with a command in it, as its controlling terminal. Output is recorded, keys can be typed, the size changed,
//! and the settings read. The command ends on drop.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use super::wait_for;

pub struct Terminal {
    master: File,
    /// Held open, so that the last output can be read.
    slave: File,
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it can be used");
        let name = ptsname(&master, Vec::new()).expect("it has a name").into_string().expect("plain text");
        let noctty = OFlags::NOCTTY.bits() as i32;
        let slave = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(&name).expect("its other end");
        tcsetwinsize(&slave, size(columns, rows)).expect("it has a size");
        let end = || OwnedFd::from(slave.try_clone().expect("a second handle"));
        command.stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        // SAFETY: runs between fork and exec and makes two async-signal-safe system calls.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                Ok(ioctl_tiocsctty(rustix::stdio::stdin())?)
            });
        }
        let child = command.spawn().expect("the command starts");
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, all) = (master.try_clone().expect("a second handle"), shown.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 64 * 1024];
            while let Ok(n @ 1..) = screen.read(&mut piece) {
                all.lock().expect("no panic").extend_from_slice(&piece[..n]);
            }
        });
        Terminal { master, slave, child, shown }
    }

    pub fn type_keys(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("keys can be typed");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Changes the window size; the command gets SIGWINCH.
    pub fn resize(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).expect("it has a new size");
    }

    /// All output so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("no panic")).into_owned()
    }

    /// Clears the recorded output.
    pub fn clear_output(&self) {
        self.shown.lock().expect("no panic").clear();
    }

    /// Waits for this output.
    pub fn wait_for_output(&self, part: &str) {
        wait_for(&format!("{part:?} on the terminal"), || self.output().contains(part));
    }

    /// The terminal's settings (stty), for comparison.
    pub fn settings(&self) -> String {
        let attributes = tcgetattr(&self.slave).expect("settings");
        format!("{:?} {:?} {:?}", attributes.input_modes, attributes.output_modes, attributes.local_modes)
    }

    /// Waits for the command to exit and returns its exit code.
    pub fn code(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the end of the command", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the terminal shows ---\n{}", self.output());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}
