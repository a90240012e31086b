//! A file of a cache: a header proves that the bytes behind it were written for this key and are
//! not damaged.
//!
//! A driver may crash on bytes that it did not make, so no bytes reach it unchecked. Files are
//! replaced as a whole, by renaming: a reader sees an old one or a new one, whichever processes
//! write. Files and directories that other users may write are left alone. A path is opened only to
//! check that it is a plain file; anything else is not read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Larger files are not kept. Drivers only ever add to their caches, so a cache that is too large
/// starts anew.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// The time after which the file of a process that was killed while writing is removed.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The beginning of the names of such files.
const TEMPORARY: &str = "tensorflow-wgpu-";
/// How long another process may hold a lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How long, on Windows, another process may have a file open that is to be replaced.
const RENAME_PATIENCE: Duration = Duration::from_secs(2);
/// The last byte is the version of the format.
const MAGIC: [u8; 8] = *b"TFWGPUC\x01";
/// The size of the header: magic, checksum, length of the key, length of the data.
const HEADER: usize = 32;

/// The outcome of reading a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The data stored for this key.
    Data(Vec<u8>),
    Nothing,
    /// A sound file of another driver or version. The next write replaces it.
    Foreign,
    /// A file that no process wrote like this, and the reason.
    Corrupt(String),
    /// A file in a directory that others may write, and the reason.
    Untrusted(String),
}

/// Reads the data stored for `key`.
pub(super) fn read(path: &Path, key: &[u8]) -> Found {
    match read_checked(path, key) {
        Ok(found) => found,
        Err(e) if e.kind() == ErrorKind::NotFound => Found::Nothing,
        Err(e) => Found::Corrupt(e.to_string()),
    }
}

fn read_checked(path: &Path, key: &[u8]) -> std::io::Result<Found> {
    let corrupt = |why: &str| Ok(Found::Corrupt(why.to_owned()));
    if let Some(why) = untrusted(&std::fs::metadata(parent(path))?) {
        return Ok(Found::Untrusted(format!("{} {why}", parent(path).display())));
    }
    let file = open_plain(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return corrupt("it is not a regular file");
    }
    if let Some(why) = untrusted(&metadata) {
        return Ok(Found::Corrupt(format!("it {why}")));
    }
    if metadata.len() > MAX_BYTES + (64 << 10) {
        return corrupt("it is too large");
    }
    let mut bytes = Vec::new();
    // The length is bounded once more: the file may grow meanwhile.
    file.take(metadata.len()).read_to_end(&mut bytes)?;
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return corrupt("it is too short");
    };
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    if header[..8] != MAGIC {
        return corrupt("it begins otherwise");
    }
    let (checksum_stored, key_length, data_length) = (number(8), number(16), number(24));
    if key_length.checked_add(data_length) != Some(rest.len() as u64) {
        return corrupt("its length differs from the one that it states");
    }
    if checksum(&[&header[16..], rest]) != checksum_stored {
        return corrupt("its checksum is wrong");
    }
    let (stored_key, data) = rest.split_at(key_length as usize);
    Ok(if stored_key == key { Found::Data(data.to_vec()) } else { Found::Foreign })
}

/// Stores `data` for `key`, replacing any file there. Makes the directory.
pub(super) fn write(path: &Path, key: &[u8], data: &[u8]) -> std::io::Result<()> {
    write_by(path, key, data, &mut temporary_name)
}

/// Does the same by way of a temporary file with the first unused name from `names`.
fn write_by(
    path: &Path,
    key: &[u8],
    data: &[u8],
    names: &mut dyn FnMut() -> String,
) -> std::io::Result<()> {
    let lengths = [(key.len() as u64).to_le_bytes(), (data.len() as u64).to_le_bytes()].concat();
    let sum = checksum(&[&lengths, key, data]);
    let (temporary, mut file) = new_file(parent(path), names)?;
    let mut write = || {
        for part in [&MAGIC[..], &sum.to_le_bytes(), &lengths, key, data] {
            file.write_all(part)?;
        }
        Ok(())
    };
    let written: std::io::Result<()> = write();
    drop(file);
    written
        .and_then(|()| replace(&temporary, path))
        .inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

/// Makes a new file in a directory that only this user may write. Makes the directory if there is
/// none.
fn new_file(
    directory: &Path,
    names: &mut dyn FnMut() -> String,
) -> std::io::Result<(PathBuf, File)> {
    make_directory(directory)?;
    if let Some(why) = untrusted(&std::fs::metadata(directory)?) {
        return Err(std::io::Error::new(
            ErrorKind::PermissionDenied,
            format!("{} {why}", directory.display()),
        ));
    }
    remove_abandoned(directory);
    loop {
        let temporary = directory.join(names());
        match create_private(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether files can be stored in a directory.
pub(super) fn try_out(directory: &Path) -> std::io::Result<()> {
    let (temporary, _) = new_file(directory, &mut temporary_name)?;
    std::fs::remove_file(temporary)
}

/// Keeps other processes from changing the file at `path` until the value is dropped. None if that
/// is impossible: the directory cannot be written, or another process has held the lock for too
/// long.
pub(super) fn lock(path: &Path) -> Option<File> {
    make_directory(parent(path)).ok()?;
    let mut name = path.file_name()?.to_owned();
    name.push(".lock");
    let start = Instant::now();
    while start.elapsed() < LOCK_PATIENCE {
        match try_lock(&path.with_file_name(&name)) {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return None,
        }
    }
    None
}

#[cfg(unix)]
fn try_lock(path: &Path) -> std::io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    let file = options.open(path)?;
    Ok(crate::sys::process::try_lock(&file)?.then_some(file))
}

/// A file that can be opened by one handle only is its own lock.
#[cfg(windows)]
fn try_lock(path: &Path) -> std::io::Result<Option<File>> {
    const SHARING_VIOLATION: i32 = 32;
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, 0);
    match options.open(path) {
        Err(e) if e.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Renames a file onto another. Windows refuses that while another process reads or replaces the
/// old one, if the file system has no POSIX renames.
fn replace(from: &Path, to: &Path) -> std::io::Result<()> {
    let patience = if cfg!(windows) { RENAME_PATIENCE } else { Duration::ZERO };
    let start = Instant::now();
    loop {
        match std::fs::rename(from, to) {
            Err(e) if e.kind() == ErrorKind::PermissionDenied && start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Containers or computers may share the directory and have processes of the same number, so the
/// number alone is no unique name.
fn temporary_name() -> String {
    let random = std::hash::BuildHasher::hash_one(
        &std::hash::RandomState::new(),
        std::time::SystemTime::now(),
    );
    format!("{TEMPORARY}{}-{random:016x}.tmp", std::process::id())
}

/// Whether [`temporary_name`] makes names like this. The directory may be any directory, with files
/// of other programs.
fn is_temporary(name: &str) -> bool {
    let numbers = name.strip_prefix(TEMPORARY).and_then(|n| n.strip_suffix(".tmp"));
    numbers.and_then(|n| n.split_once('-')).is_some_and(|(process, random)| {
        process.parse::<u32>().is_ok()
            && random.len() == 16
            && random.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

/// FNV-1a of 64 bits. It detects damage, not malice: a user who may write the file may run programs
/// as its owner.
pub(super) fn checksum(parts: &[&[u8]]) -> u64 {
    parts.iter().copied().flatten().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn create_private(path: &PathBuf) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a file for reading, without waiting for the other end of a pipe, and without following a
/// link.
fn open_plain(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    options.open(path)
}

/// The reason if another user may have written a file or may put files into a directory.
#[cfg(unix)]
fn untrusted(metadata: &std::fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;

    // In a sticky directory like /tmp, other users cannot replace our files, and the owner of a
    // file shows that it is theirs.
    let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
    if ![0, crate::sys::process::user()].contains(&metadata.uid()) {
        Some("belongs to another user")
    } else if metadata.mode() & 0o022 != 0 && !sticky {
        Some("may be written by other users; `chmod go-w` forbids it")
    } else {
        None
    }
}

#[cfg(not(unix))]
const fn untrusted(_: &std::fs::Metadata) -> Option<&'static str> {
    None
}

fn remove_abandoned(directory: &Path) {
    let is_old = |entry: &std::fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(metadata.modified().ok()?.elapsed().ok()? > ABANDONED)
    };
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_temporary) && is_old(&entry) == Some(true) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"adapter, driver 1.2";

    /// A directory of one test, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir()
                .join(format!("tensorflow-wgpu-cache-{}-{name}", std::process::id()));
            drop(std::fs::remove_dir_all(&path));
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("below/one.bin")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn data(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i * 31 + n) as u8).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let scratch = Scratch::new("round-trip");
        assert_eq!(read(&scratch.file(), KEY), Found::Nothing);
        for n in [0, 1, 1000, 70_000] {
            write(&scratch.file(), KEY, &data(n)).unwrap();
            assert_eq!(read(&scratch.file(), KEY), Found::Data(data(n)), "{n} bytes");
        }
        let names: Vec<_> = std::fs::read_dir(scratch.file().parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays: {names:?}");
    }

    #[test]
    fn a_file_of_another_driver_is_foreign() {
        let scratch = Scratch::new("foreign");
        write(&scratch.file(), b"adapter, driver 1.1", &data(100)).unwrap();
        assert_eq!(read(&scratch.file(), KEY), Found::Foreign);
        // This key is a prefix of the other one, so the boundary between key and data counts.
        write(&scratch.file(), b"adapter", &data(100)).unwrap();
        assert_eq!(read(&scratch.file(), KEY), Found::Foreign);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
        let scratch = Scratch::new("corrupt");
        write(&scratch.file(), KEY, &data(40)).unwrap();
        let whole = std::fs::read(scratch.file()).unwrap();
        let is_corrupt = |bytes: &[u8], what: &str| {
            std::fs::write(scratch.file(), bytes).unwrap();
            assert!(matches!(read(&scratch.file(), KEY), Found::Corrupt(_)), "{what}");
        };
        for n in 0..whole.len() {
            is_corrupt(&whole[..n], &format!("cut to {n} bytes"));
            let mut changed = whole.clone();
            changed[n] ^= 0x40;
            is_corrupt(&changed, &format!("byte {n} changed"));
        }
        is_corrupt(&[&whole[..], &[0]].concat(), "a byte more");
        std::fs::write(scratch.file(), whole).unwrap();
        assert_eq!(read(&scratch.file(), KEY), Found::Data(data(40)));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;

        let scratch = Scratch::new("shared");
        write(&scratch.file(), KEY, &data(40)).unwrap();
        std::fs::set_permissions(scratch.file(), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(read(&scratch.file(), KEY), Found::Corrupt(_)));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let scratch = Scratch::new("unwritable");
        std::fs::create_dir_all(&scratch.0).unwrap();
        // A file in place of the directory: not even root can write below it.
        std::fs::write(scratch.0.join("below"), b"").unwrap();
        assert!(write(&scratch.file(), KEY, &data(4)).is_err());
        assert!(!matches!(read(&scratch.file(), KEY), Found::Data(_) | Found::Foreign));
    }

    #[cfg(unix)]
    #[test]
    fn nothing_but_a_plain_file_is_read() {
        let scratch = Scratch::new("kinds");
        write(&scratch.file(), KEY, &data(40)).unwrap();
        let elsewhere = scratch.0.join("elsewhere.bin");
        std::fs::rename(scratch.file(), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, scratch.file()).unwrap();
        assert!(matches!(read(&scratch.file(), KEY), Found::Corrupt(_)), "a link to a sound file");
        write(&scratch.file(), KEY, &data(4)).unwrap();
        assert_eq!(
            read(&elsewhere, KEY),
            Found::Data(data(40)),
            "writing replaces the link, not what it leads to"
        );
        std::fs::remove_file(scratch.file()).unwrap();
        // Opening a pipe to read waits for a writer, unless asked not to.
        let made = std::process::Command::new("mkfifo").arg(scratch.file()).status().unwrap();
        assert!(made.success());
        assert!(matches!(read(&scratch.file(), KEY), Found::Corrupt(_)), "a pipe");
        std::fs::remove_file(scratch.file()).unwrap();
        std::fs::create_dir(scratch.file()).unwrap();
        assert!(matches!(read(&scratch.file(), KEY), Found::Corrupt(_)), "a directory");
        assert!(write(&scratch.file(), KEY, &data(4)).is_err());
        let names: Vec<_> = std::fs::read_dir(scratch.file().parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays: {names:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_others_may_write_is_left_alone() {
        use std::os::unix::fs::PermissionsExt;

        let scratch = Scratch::new("open");
        write(&scratch.file(), KEY, &data(40)).unwrap();
        let mode = |mode| {
            std::fs::set_permissions(
                scratch.file().parent().unwrap(),
                std::fs::Permissions::from_mode(mode),
            )
            .unwrap();
        };
        for open in [0o777, 0o770, 0o702] {
            mode(open);
            assert!(
                matches!(read(&scratch.file(), KEY),
                    Found::Untrusted(why) if why.contains("chmod")),
                "{open:o}"
            );
            assert_eq!(
                write(&scratch.file(), KEY, &data(4)).unwrap_err().kind(),
                ErrorKind::PermissionDenied
            );
        }
        for closed in [0o755, 0o1777] {
            mode(closed);
            assert_eq!(read(&scratch.file(), KEY), Found::Data(data(40)), "{closed:o}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_belongs_to_others_is_refused() {
        let scratch = Scratch::new("owner");
        write(&scratch.file(), KEY, &data(40)).unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(scratch.file(), Some(12_345), None).is_ok() {
            assert!(matches!(read(&scratch.file(), KEY),
                    Found::Corrupt(why) if why.contains("another user")));
            write(&scratch.file(), KEY, &data(40)).unwrap();
            std::os::unix::fs::chown(scratch.file().parent().unwrap(), Some(12_345), None).unwrap();
            assert!(matches!(read(&scratch.file(), KEY),
                    Found::Untrusted(why) if why.contains("another user")));
        }
    }

    #[test]
    fn a_temporary_name_that_is_taken_is_left_to_its_owner() {
        let scratch = Scratch::new("taken");
        write(&scratch.file(), KEY, &data(1)).unwrap();
        let taken = scratch.file().with_file_name("7-0.tmp");
        std::fs::write(&taken, b"another container's").unwrap();
        let mut names = ["7-0.tmp", "7-0.tmp", "7-1.tmp"].iter().map(|name| (*name).to_owned());
        write_by(&scratch.file(), KEY, &data(40), &mut || names.next().unwrap()).unwrap();
        assert_eq!(read(&scratch.file(), KEY), Found::Data(data(40)));
        assert_eq!(std::fs::read(&taken).unwrap(), b"another container's");
        assert_ne!(temporary_name(), temporary_name());
    }

    #[test]
    fn nothing_but_old_temporary_files_of_ours_is_removed() {
        let scratch = Scratch::new("abandoned");
        write(&scratch.file(), KEY, &data(1)).unwrap();
        let directory = scratch.file().parent().unwrap().to_owned();
        let old = std::time::SystemTime::now() - 2 * ABANDONED;
        let age = |name: &str| {
            let path = directory.join(name);
            let file = File::options().append(true).create(true).open(&path).unwrap();
            file.set_modified(old).unwrap();
        };
        let ours = temporary_name();
        let others = [
            "thesis.tmp",
            "7-0.tmp",
            "7-0123456789abcdef.tmp",
            "tensorflow-wgpu.tmp",
            "tensorflow-wgpu-notes.tmp",
            "tensorflow-wgpu-1-2.tmp",
            "tensorflow-wgpu-x-0123456789abcdef.tmp",
            "tensorflow-wgpu-1-0123456789abcdef.tmp.txt",
        ];
        age(&ours);
        others.iter().for_each(|name| age(name));
        let young = temporary_name();
        std::fs::write(directory.join(&young), b"").unwrap();
        std::fs::create_dir(directory.join(temporary_name())).unwrap();
        write(&scratch.file(), KEY, &data(2)).unwrap();
        assert!(!directory.join(ours).exists());
        for name in others.into_iter().chain([&*young]) {
            assert!(directory.join(name).exists(), "{name}");
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), others.len() + 3);
    }

    /// Set in the child processes of the next test: the file to write.
    const CHILD: &str = "TF_WGPU_TEST_CACHE_FILE";

    #[test]
    fn processes_that_write_at_once_leave_a_whole_file() {
        if let Some(path) = std::env::var_os(CHILD) {
            (0..200).for_each(|i| write(Path::new(&path), KEY, &data(20_000 + i)).unwrap());
            return;
        }
        let scratch = Scratch::new("processes");
        let test = "device::cache::file::tests::processes_that_write_at_once_leave_a_whole_file";
        let spawn = || {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args([test, "--exact"])
                .env(CHILD, scratch.file())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut children = [spawn(), spawn()];
        let mut whole = 0;
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            match read(&scratch.file(), KEY) {
                Found::Data(read) => {
                    assert_eq!(read, data(read.len()));
                    whole += 1;
                }
                other => assert!(
                    other == Found::Nothing && whole == 0,
                    "{other:?} after {whole} whole files"
                ),
            }
        }
        assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
        assert_eq!(read(&scratch.file(), KEY), Found::Data(data(20_199)));
    }
}
