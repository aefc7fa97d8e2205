//! Any libssl by its path, loaded while the program runs.
