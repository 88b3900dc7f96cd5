//! PostgreSQL's frontend/backend protocol 3.0: messages as bytes, and back.
