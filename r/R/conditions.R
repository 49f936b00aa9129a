# What can go wrong, each with one sentence that says what, where, and what to do.

# Stop with an error of class ulisse_<kind>. All of them are of class ulisse_error.
fail <- function(kind, message, ...) {
  classes <- c(
    if (kind == "bad_specification") "ulisse_bad_specification",
    if (kind %in% c("bad_specification", "bad_input")) "ulisse_bad_input" else if (nzchar(kind)) paste0("ulisse_", kind),
    "ulisse_error", "error", "condition"
  )
  stop(structure(class = classes, list(message = message, call = NULL, ...)))
}

# Warn that a run ended before its chains agreed.
warn_not_converged <- function(message) {
  warning(structure(class = c("ulisse_not_converged", "warning", "condition"), list(message = message, call = NULL)))
}

# Stop with the error that the program ended with.
fail_program <- function(code, stderr, generated = TRUE) {
  lines <- strsplit(stderr, "\n", fixed = TRUE)[[1]]
  said <- sub("^ulisse: ", "", grep("^ulisse: ", lines, value = TRUE))
  message <- if (length(said)) said[[length(said)]] else if (length(lines)) lines[[length(lines)]] else ""
  if (!nzchar(message)) message <- paste("ulisse ended with code", code)
  message <- sub("go on with:? ulisse run --resume [^ ]+", "go on with ulisse_resume()", message)
  table <- regmatches(message, regexec("^(standard input|[^ ]*ulisse-rows[^ :]*): line ([0-9]+)", message))[[1]]
  if (length(table)) {
    row <- as.integer(table[[3]]) - 1L
    message <- sub(table[[1]], if (row > 0) paste("row", row) else "the table", message, fixed = TRUE)
  }
  if (code != 2) fail(if (grepl("no answer from the cluster", message)) "unreachable" else "job_failed", message)
  fail_field(message, generated)
}

# Stop with an error of a field, if the message names one, as in: file: line 3, column 7: model.kernel: what is wrong. A
# fault that has no place, as a field that is missing, has no line; the file is this package's then.
fail_field <- function(message, generated, field = NULL) {
  place <- "(?:line ([0-9]+), column ([0-9]+): )"
  rest <- "(?:([A-Za-z_][A-Za-z0-9_.]*(?:\\[[^]]*\\])?): )?(.*)$"
  own <- regmatches(message, regexec(paste0("^[^\n]*?ulisse-spec\\.json: ", place, "?", rest), message, perl = TRUE))[[1]]
  at <- if (length(own)) own else regmatches(message, regexec(paste0("^(?:[^\n]*?: )?", place, rest), message, perl = TRUE))[[1]]
  if (!length(at)) fail(if (is.null(field)) "bad_input" else "bad_specification", message, field = field)
  if (is.null(field) && nzchar(at[[4]])) field <- at[[4]]
  said <- paste0(if (nzchar(at[[4]])) paste0(at[[4]], ": "), at[[5]])
  if (generated) fail("bad_specification", said, field = field) # this package wrote the text: its lines mean nothing to the user
  if (length(own)) message <- paste0(if (nzchar(at[[2]])) sprintf("line %s, column %s: ", at[[2]], at[[3]]), said)
  number <- function(x) if (nzchar(x)) as.integer(x)
  fail("bad_specification", message, field = field, line = number(at[[2]]), column = number(at[[3]]))
}
