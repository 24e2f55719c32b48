//! LAYER 1: views to text, pure. The committed record goes in, JSON, Markdown, HTML, JUnit XML or words for a terminal come
//! out. Nothing here decides anything about a run, reads a clock or writes a file.
