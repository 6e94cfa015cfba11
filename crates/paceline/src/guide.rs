//! A polite API client, from start to end.
