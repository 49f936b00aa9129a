read <- function(data) {
  path <- tempfile()
  on.exit(unlink(path))
  write_table(data, path)
  readLines(path, encoding = "UTF-8")
}

write_table <- function(...) ulisse:::write_table(...)

test_that("numbers are exact", {
  set.seed(1)
  x <- c(rnorm(200) * 10^sample(-290:290, 200, replace = TRUE), 0.1, 5e-324, .Machine$double.xmax)
  back <- as.numeric(read(data.frame(x = x))[-1])
  expect_identical(back, x)
})

test_that("types are respected", {
  d <- data.frame(
    int = c(1L, NA), flag = c(TRUE, FALSE), text = c("a,\"b\"", NA), season = factor(c("wet", "dry")),
    day = as.Date(c("2024-01-01", NA)), when = as.POSIXct(c("2024-01-02 03:00:00", NA), tz = "UTC"), x = c(NaN, 1.5)
  )
  expect_identical(read(d), c(
    "\"int\",\"flag\",\"text\",\"season\",\"day\",\"when\",\"x\"",
    "1,1,\"a,\"\"b\"\"\",\"wet\",2024-01-01,2024-01-02T03:00:00.000000,",
    ",0,,\"dry\",,,1.5"
  ))
})

test_that("bad tables are refused", {
  expect_error(read(data.frame(a = 1, a = 2, check.names = FALSE)), "more than one column called a", class = "ulisse_bad_input")
  expect_error(read(data.frame(a = I(matrix(1:4, 2)))), "a column of the table is a matrix")
})

test_that("JSON is exact", {
  x <- list(a = 1L, b = c(0.1 + 0.2, 1 / 3), c = list(TRUE, "ü\"", NULL), d = I("one"), e = I(c(x = 5e-324)), f = 2^53, g = list())
  text <- ulisse:::to_json(x)
  back <- jsonlite::fromJSON(text, simplifyVector = FALSE, bigint_as_char = FALSE)
  expect_identical(unlist(back$b), x$b)
  expect_identical(back$c, list(TRUE, "ü\"", NULL))
  expect_identical(back$d, list("one"))
  expect_identical(back$e, list(5e-324))
  expect_match(text, "\"f\": 9007199254740992", fixed = TRUE)
  expect_match(text, "\"g\": []", fixed = TRUE)
})
