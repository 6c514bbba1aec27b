"""HTTP and what is the same for all operations: routes, problems, long polls, the OpenAPI document."""
