# JSON with numbers that are read back to the last bit: jsonlite writes 15 digits.

# A list with names is an object, one without is an array; so is what I() marks. Other vectors of length one are values.
to_json <- function(x) {
  if (is.null(x)) return("null")
  if (is.list(x)) {
    parts <- vapply(x, to_json, "")
    if (is.null(names(x))) return(paste0("[", paste(parts, collapse = ", "), "]"))
    return(paste0("{", paste0(json_strings(names(x)), ": ", parts, collapse = ",\n"), "}"))
  }
  values <- if (is.character(x) || is.factor(x)) json_strings(as.character(x))
    else if (is.logical(x)) ifelse(is.na(x), "null", tolower(as.character(x)))
    else ifelse(is.finite(x), shortest(x), "null")
  if (length(x) == 1 && !inherits(x, "AsIs")) return(values)
  paste0("[", paste(values, collapse = ", "), "]")
}

json_strings <- function(x) vapply(x, function(s) as.character(jsonlite::toJSON(enc2utf8(s), auto_unbox = TRUE)), "", USE.NAMES = FALSE)

# The fewest digits, of 15 or 17, that are read back as the same number.
shortest <- function(x) {
  x <- as.numeric(x)
  few <- sprintf("%.15g", x)
  long <- is.finite(x)
  long[long] <- as.numeric(few[long]) != x[long]
  few[long] <- sprintf("%.17g", x[long])
  few
}
