//! Errors sent to clients: SQLSTATE, message, detail and hint.

use std::fmt;

/// A five-character SQLSTATE of PostgreSQL's appendix A.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub [u8; 5]);

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl SqlState { $($(#[$doc])* pub const $name: SqlState = SqlState(*$code);)* }
    };
}

states! {
    /// successful_completion: for notices
    SUCCESSFUL_COMPLETION = b"00000";
    /// connection_failure
    CONNECTION_FAILURE = b"08006";
    /// warning
    WARNING = b"01000";
    /// protocol_violation
    PROTOCOL_VIOLATION = b"08P01";
    /// feature_not_supported: the message names the construct
    FEATURE_NOT_SUPPORTED = b"0A000";
    /// cardinality_violation
    CARDINALITY_VIOLATION = b"21000";
    /// string_data_right_truncation
    STRING_TRUNCATION = b"22001";
    /// numeric_value_out_of_range
    OUT_OF_RANGE = b"22003";
    /// datetime_field_overflow
    DATETIME_OVERFLOW = b"22008";
    /// division_by_zero
    DIVISION_BY_ZERO = b"22012";
    /// invalid_row_count_in_limit_clause
    INVALID_LIMIT = b"2201W";
    /// invalid_row_count_in_result_offset_clause
    INVALID_OFFSET = b"2201X";
    /// invalid_parameter_value
    INVALID_PARAMETER = b"22023";
    /// character_not_in_repertoire: bytes that are not UTF-8
    NOT_IN_REPERTOIRE = b"22021";
    /// invalid_datetime_format
    INVALID_DATETIME = b"22007";
    /// invalid_text_representation
    INVALID_TEXT = b"22P02";
    /// invalid_binary_representation
    INVALID_BINARY = b"22P03";
    /// bad_copy_file_format
    BAD_COPY_FORMAT = b"22P04";
    /// not_null_violation
    NOT_NULL_VIOLATION = b"23502";
    /// unique_violation
    UNIQUE_VIOLATION = b"23505";
    /// check_violation
    CHECK_VIOLATION = b"23514";
    /// active_sql_transaction
    ACTIVE_TRANSACTION = b"25001";
    /// read_only_sql_transaction
    READ_ONLY_TRANSACTION = b"25006";
    /// no_active_sql_transaction
    NO_ACTIVE_TRANSACTION = b"25P01";
    /// in_failed_sql_transaction
    IN_FAILED_TRANSACTION = b"25P02";
    /// invalid_sql_statement_name
    UNDEFINED_STATEMENT = b"26000";
    /// invalid_cursor_name
    UNDEFINED_CURSOR = b"34000";
    /// invalid_catalog_name
    UNDEFINED_DATABASE = b"3D000";
    /// invalid_savepoint_specification
    UNDEFINED_SAVEPOINT = b"3B001";
    /// invalid_schema_name
    UNDEFINED_SCHEMA = b"3F000";
    /// serialization_failure: retry the transaction
    SERIALIZATION_FAILURE = b"40001";
    /// deadlock_detected: retry the transaction
    DEADLOCK = b"40P01";
    /// syntax_error
    SYNTAX = b"42601";
    /// duplicate_column
    DUPLICATE_COLUMN = b"42701";
    /// ambiguous_column
    AMBIGUOUS_COLUMN = b"42702";
    /// undefined_column
    UNDEFINED_COLUMN = b"42703";
    /// undefined_object
    UNDEFINED_OBJECT = b"42704";
    /// duplicate_object
    DUPLICATE_OBJECT = b"42710";
    /// grouping_error
    GROUPING = b"42803";
    /// datatype_mismatch
    DATATYPE_MISMATCH = b"42804";
    /// wrong_object_type
    WRONG_OBJECT_TYPE = b"42809";
    /// cannot_coerce
    CANNOT_COERCE = b"42846";
    /// undefined_function
    UNDEFINED_FUNCTION = b"42883";
    /// undefined_table
    UNDEFINED_TABLE = b"42P01";
    /// undefined_parameter
    UNDEFINED_PARAMETER = b"42P02";
    /// duplicate_prepared_statement
    DUPLICATE_STATEMENT = b"42P05";
    /// duplicate_table
    DUPLICATE_TABLE = b"42P07";
    /// invalid_column_reference
    INVALID_COLUMN_REFERENCE = b"42P10";
    /// invalid_table_definition
    INVALID_TABLE_DEFINITION = b"42P16";
    /// indeterminate_datatype
    INDETERMINATE_DATATYPE = b"42P18";
    /// insufficient_privilege
    INSUFFICIENT_PRIVILEGE = b"42501";
    /// disk_full
    DISK_FULL = b"53100";
    /// out_of_memory
    OUT_OF_MEMORY = b"53200";
    /// too_many_connections
    TOO_MANY_CONNECTIONS = b"53300";
    /// program_limit_exceeded
    LIMIT_EXCEEDED = b"54000";
    /// object_in_use
    OBJECT_IN_USE = b"55006";
    /// cant_change_runtime_param
    CANT_CHANGE_PARAM = b"55P02";
    /// lock_not_available
    LOCK_NOT_AVAILABLE = b"55P03";
    /// snapshot_too_old
    SNAPSHOT_TOO_OLD = b"72000";
    /// query_canceled
    QUERY_CANCELED = b"57014";
    /// admin_shutdown
    ADMIN_SHUTDOWN = b"57P01";
    /// io_error
    IO = b"58030";
    /// duplicate_file
    DUPLICATE_FILE = b"58P02";
    /// internal_error: a bug in the server
    INTERNAL = b"XX000";
    /// data_corrupted
    DATA_CORRUPTED = b"XX001";
}

impl SqlState {
    /// Returns the code as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }
}
impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
    position: Option<u32>,
    object: Object,
}

/// The object that an error concerns, by the names of PostgreSQL's fields; empty names are not
/// sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// The table.
    pub table: String,
    /// The column of the table.
    pub column: String,
    /// The constraint of the table.
    pub constraint: String,
}

/// The result of an operation that can fail because of client input.
pub type SqlResult<T> = Result<T, SqlError>;

impl SqlError {
    /// Creates an error with its code and its message (PostgreSQL's wording where it has one).
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            position: None,
            object: Object::default(),
        }))
    }
    /// Creates error 0A000, naming the construct: "{construct} is not supported".
    pub fn unsupported(construct: impl fmt::Display) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{construct} is not supported"))
    }
    /// Creates error XX000 for a bug in the server.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::INTERNAL, message)
    }
    /// Adds a detail.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }
    /// Adds a hint: what the user may do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }
    /// Adds a context besides the query: a line of a COPY's data.
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context = Some(context.into());
        self
    }
    /// Adds the position in the query: characters from its start, counted from 1.
    pub fn at(mut self, position: u32) -> Self {
        self.0.position = Some(position);
        self
    }
    /// Names the table that the error concerns.
    pub fn table(mut self, table: &str) -> Self {
        table.clone_into(&mut self.0.object.table);
        self
    }
    /// Names the column of the table that [`SqlError::table`] names.
    pub fn column(mut self, column: &str) -> Self {
        column.clone_into(&mut self.0.object.column);
        self
    }
    /// Names the constraint of the table that [`SqlError::table`] names.
    pub fn constraint(mut self, constraint: &str) -> Self {
        constraint.clone_into(&mut self.0.object.constraint);
        self
    }
    /// Returns the SQLSTATE.
    pub fn state(&self) -> SqlState {
        self.0.state
    }
    /// Returns the primary message.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Returns the detail, if any.
    pub fn get_detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }
    /// Returns the hint, if any.
    pub fn get_hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Returns the context, if known.
    pub fn get_context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }
    /// Returns the object that the error concerns.
    pub fn object(&self) -> &Object {
        &self.0.object
    }
    /// Returns the position in the query, if known: characters, from 1.
    pub fn position(&self) -> Option<u32> {
        self.0.position
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.state, self.0.message)
    }
}
impl std::error::Error for SqlError {}
