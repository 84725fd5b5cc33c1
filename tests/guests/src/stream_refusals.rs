//! Writes to forbidden files through thousands of streams, so that the denials could hide other
//! activity.

use conclave_sdk::tool;
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};

/// Writes to each of so many links, so many times; says how many writes were answered with an
/// error, and how many with none.
#[tool]
fn run(links: u32, times: u32) -> String {
    let Some((folder, _)) = get_directories().into_iter().find(|(_, at)| at == "/folder") else {
        return "no /folder".to_owned();
    };
    let (mut refused, mut wrote) = (0, 0);
    for index in (0..times).flat_map(|_| 0..links) {
        if is_refused(&folder, &format!("link-{index}")) { refused += 1 } else { wrote += 1 }
    }
    format!("{refused} refused, {wrote} WROTE")
}

fn is_refused(folder: &Descriptor, name: &str) -> bool {
    let Ok(file) =
        folder.open_at(PathFlags::SYMLINK_FOLLOW, name, OpenFlags::empty(), DescriptorFlags::WRITE)
    else {
        return true;
    };
    let Ok(stream) = file.write_via_stream(0) else { return true };
    stream.blocking_write_and_flush(b"OVERWRITTEN").is_err()
}

conclave_sdk::export!(tools: [run], asks: [files]);
