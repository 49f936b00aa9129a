# Tables: what users hold, as CSV that the program reads.

# Write a data frame to a file. Numbers are read back to the last bit; missing values are empty.
write_table <- function(data, path) {
  data <- as.data.frame(data, check.names = FALSE)
  twice <- unique(names(data)[duplicated(names(data))])
  if (length(twice)) fail("bad_input", sprintf("the table has more than one column called %s: rename them", paste(twice, collapse = ", ")))
  if (any(vapply(data, function(x) NCOL(x) != 1, NA))) fail("bad_input", "a column of the table is a matrix: give its columns one by one")
  cells <- lapply(data, cells_of)
  lines <- if (length(cells)) do.call(paste, c(unname(cells), sep = ",")) else character()
  writeLines(enc2utf8(c(paste(quoted(names(data)), collapse = ","), lines)), path, useBytes = TRUE)
  invisible(path)
}

cells_of <- function(x) {
  text <- if (inherits(x, "POSIXt")) format(x, "%Y-%m-%dT%H:%M:%OS6", tz = "UTC")
    else if (inherits(x, "Date")) format(x, "%Y-%m-%d")
    else if (is.logical(x)) as.character(as.integer(x))
    else if (is.factor(x)) quoted(as.character(x))
    else if (is.integer(x)) as.character(x)
    else if (is.numeric(x)) shortest(x)
    else quoted(as.character(x))
  text[is.na(x)] <- ""
  text
}

quoted <- function(x) paste0("\"", gsub("\"", "\"\"", x, fixed = TRUE), "\"")

# Read a CSV file of numbers that the program wrote.
read_numbers <- function(file) {
  read <- function(...) utils::read.csv(file, check.names = FALSE, comment.char = "#", ...)
  read(colClasses = ifelse(names(read(nrows = 1)) == "class", "character", "numeric")) # the likeliest class of a prediction
}
