//! Placeholder doc.
