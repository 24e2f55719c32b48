//! Which processes hold a lock on a file, as the kernel tells it. It opens nothing: a file that SQLite has open must not be
//! opened and closed by anybody else in the same process (T2).

use std::path::Path;

use rustix::fs::stat;

/// Processes other than this one that hold a lock on one of these files. Files are compared by their number alone, because
/// some file systems tell another device here than there: a stranger may be named, a holder is never missed.
pub fn holders(files: &[&Path]) -> Vec<i32> {
    let numbers: Vec<u64> = files.iter().filter_map(|file| stat(*file).ok()).map(|found| found.st_ino).collect();
    let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut pids: Vec<i32> =
        table.lines().filter_map(|line| holder(line, &numbers)).filter(|pid| *pid != own).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// `1: POSIX  ADVISORY  READ  1234 08:01:567 128 128`; one that waits has an arrow before it.
fn holder(line: &str, numbers: &[u64]) -> Option<i32> {
    let mut words = line.split_whitespace().skip_while(|word| *word != "ADVISORY" && *word != "MANDATORY").skip(2);
    let pid = words.next()?.parse().ok()?;
    let number = words.next()?.rsplit(':').next()?.parse().ok()?;
    numbers.contains(&number).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_table_names_holder_and_file() {
        let line = "1: POSIX  ADVISORY  READ 2134 00:1f:567 1073741826 1073742335";
        assert_eq!(holder(line, &[5, 567]), Some(2134));
        assert_eq!(holder(line, &[56]), None);
        assert_eq!(holder("2: -> FLOCK  ADVISORY  WRITE 7 08:01:567 0 EOF", &[567]), Some(7));
        assert_eq!(holder("", &[567]), None);
    }

    #[test]
    fn nobody_holds_a_file_that_nobody_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holders(&[file.path(), Path::new("/nonexistent")]), Vec::<i32>::new());
    }
}
