//! What turns a handler into a Lambda function.
