//! Test of CUDA IPC: another process opens memory of this one, reads what was written and writes something else.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::cuda::{Device, Driver, IpcHandle, pattern};
use super::self_test::{Part, SUBCOMMAND};

/// Seeds of the bytes that this process and the other one write.
const OWN_SEED: u8 = 0x5a;
const OTHER_SEED: u8 = 0xa5;
/// Text of the other process without an error.
const DONE: &str = "done";
/// Longest message between the two.
const MAX_MESSAGE_BYTES: u64 = 4096;

pub fn test(driver: &Driver, device: &Device) -> Result<String, String> {
    driver.select(device)?;
    let buffer = driver.alloc()?;
    driver.write(buffer.address, &pattern(OWN_SEED))?;
    let handle = buffer.ipc_handle()?;
    let failed = |error: std::io::Error| format!("the other process of the test failed ({error})");
    let mut other = Command::new("/proc/self/exe")
        .args([SUBCOMMAND, Part::IpcImporter.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let message = format!("{} {}\n", device.ordinal, encode(&handle));
    other.stdin.take().expect("it is piped").write_all(message.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    other.stdout.take().expect("it is piped").take(MAX_MESSAGE_BYTES).read_to_string(&mut answer).map_err(failed)?;
    other.wait().map_err(failed)?;
    match answer.lines().last() {
        Some(DONE) => {}
        Some(error) => return Err(error.to_owned()),
        None => return Err("the other process of the test gave no answer".to_owned()),
    }
    match driver.read(buffer.address)? == *pattern(OTHER_SEED) {
        true => Ok("works: a process read and wrote GPU memory of another one".to_owned()),
        false => Err("what another process wrote did not arrive".to_owned()),
    }
}

/// The other process. The error is printed; the result is for the exit code.
pub fn import() -> Result<(), ()> {
    // Not left behind when the test is stopped because the driver hangs.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut message = String::new();
    let read = BufReader::new(std::io::stdin().take(MAX_MESSAGE_BYTES)).read_line(&mut message);
    let opened = read.map_err(|error| error.to_string()).and_then(|_| open_and_change(&message));
    let answer = opened.as_ref().map_or_else(String::as_str, |()| DONE);
    // Without a reader the test is over.
    let _ = writeln!(std::io::stdout(), "{answer}");
    opened.map_err(drop)
}

fn open_and_change(message: &str) -> Result<(), String> {
    let (ordinal, handle) = decode(message).ok_or("the other process received no memory")?;
    let driver = Driver::open()?;
    let device = driver.device(ordinal)?;
    driver.select(&device)?;
    let memory = driver.open_ipc(handle)?;
    if driver.read(memory.address)? != *pattern(OWN_SEED) {
        return Err("another process reads other bytes than were written".to_owned());
    }
    driver.write(memory.address, &pattern(OTHER_SEED))
}

fn encode(handle: &IpcHandle) -> String {
    handle.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Ordinal and handle of a message.
fn decode(message: &str) -> Option<(i32, IpcHandle)> {
    let (ordinal, digits) = message.trim().split_once(' ')?;
    let bytes: Option<Vec<u8>> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    Some((ordinal.parse().ok()?, IpcHandle(bytes?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_survives_the_message() {
        let handle = IpcHandle(std::array::from_fn(|at| (at * 7) as u8));
        assert_eq!(decode(&format!("3 {}\n", encode(&handle))), Some((3, handle)));
        for other in ["", "x", "0 abc", "0 ab", "x ab"] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
