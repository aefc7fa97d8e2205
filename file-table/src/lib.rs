//! Tables of open files: one for a thread alone, and the door through which descriptors come into
//! it.
//!
//! By default all threads of a process share one table. Every accept(2), socket(2) and close(2)
//! then takes its lock and writes its bitmap. When the table grows, each thread that needs a number
//! waits until every processor has passed through a quiet state.
//!
//! ```text
//!  thread that starts another              thread with its own table
//!    door() -> Giver, Entrance  ---------->  Entrance::settle -> Taker
//!    Giver::give(descriptors)   =SCM_RIGHTS=>  Taker::take -> Descriptor
//! ```
//!
//! A number means nothing in another table. So a [`Descriptor`] stays with its thread, which the
//! compiler enforces, and only the door changes one number into another.
#![deny(unsafe_op_in_unsafe_fn)]

mod descriptor;
mod door;
mod passed;
mod sharing;
mod table;

pub use descriptor::Descriptor;
pub use door::{
    ANSWER_WAIT, Entrance, GiveError, Giver, Left, PART_DESCRIPTORS_MAX, Part, Settled, Taker, door,
};
pub use passed::passed;
pub use sharing::{same_file, same_map, same_table};
pub use table::{DESCRIPTOR_BYTES, FileTable, TABLE_DESCRIPTORS_MAX, can_be_own, grow, own_copy};
