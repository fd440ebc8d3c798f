//! `roadstead migrate`: brings the database's schema up to date.
