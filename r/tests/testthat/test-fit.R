fit <- NULL

the_fit <- function() {
  if (is.null(fit)) fit <<- fit_quickly(response ~ time + dose, small_data(), ard = TRUE)
  fit
}

test_that("a formula is fitted, and the methods tell of it", {
  needs_program()
  f <- the_fit()
  d <- small_data()
  # The same data, specification and seed as the run of a table: the same draws.
  expect_identical(ulisse:::job_summary(f$job)$draws_sha256, ulisse:::job_summary(once_done())$draws_sha256)
  expect_output(print(f), "Gaussian process: response ~ time \\+ dose.*converged.*noise_sd")
  expect_equal(coef(f)[["noise_sd"]], mean(as_draws_df(f)$noise_sd))
  expect_false(any(startsWith(names(coef(f)), "log_")))
  expect_identical(nobs(f), 60L)
  expect_identical(formula(f), response ~ time + dose, ignore_attr = TRUE)
  p <- predict(f, d)
  expect_named(p, c("Estimate", "Est.Error", "Q2.5", "Q97.5"))
  expect_identical(p, predict(f))
  expect_identical(predict(f, d[c("dose", "time")]), p)
  expect_identical(predict(once_done(), d)$Estimate, p$Estimate)
  expect_equal(residuals(f), d$response - fitted(f))
  expect_gt(1 - mean(residuals(f)^2) / mean((d$response - mean(d$response))^2), 0.9)
  expect_identical(log_score(f, d), mean(attr(predict(once_done(), d), "log_density")))
  expect_error(log_score(f, d["time"]), "dose")
  expect_identical(posterior::variables(as_draws_rvars(f)), unique(sub("\\[.*", "", posterior::variables(as_draws(f)))))
})

test_that("formulas are those of R", {
  needs_program()
  d <- transform(small_data(), other = rnorm(60))
  a <- fit_quickly(log(response + 3) ~ . - other, d)
  expect_identical(ulisse:::job_info(a$job)[c("inputs", "target")], list(inputs = c("time", "dose"), target = "log(response + 3)"))
  expect_identical(nrow(predict(a, d[1:3, ])), 3L)
  expect_true(is.finite(log_score(a, d)))
  b <- fit_quickly(response ~ I(time / 2) + dose, d)
  expect_equal(predict(b, data.frame(time = 1, dose = 0.5))$Estimate, predict(b, data.frame(time = 1, dose = 0.5, response = 2))$Estimate)
  for (bad in list(response ~ time * dose, ~time, response ~ 1, cbind(response, dose) ~ time, response ~ time + offset(dose) + offset(other)))
    expect_error(fit_quickly(bad, d), "^formula: ", class = "ulisse_bad_input")
})

test_that("parameters reach the program", {
  needs_program()
  f <- fit_quickly(response ~ time, small_data(), priors = list(sigma = "gamma(2,1)"), seed = 5, max_time = as.difftime(1.5, units = "mins"))
  text <- readLines(file.path(f$job$folder, "spec.yaml"))
  for (line in c("kernel: matern52", "sigma: gamma(2,1)", "seed: 5", "max_time: 1m30s", "chains: 2", "warmup: 20"))
    expect_true(any(grepl(line, text, fixed = TRUE)), line)
  for (k in c("mean", "likelihood")) {
    e <- expect_error(do.call(fit_quickly, c(list(response ~ time, small_data()), setNames(list("no such thing"), k))), class = "ulisse_bad_specification")
    expect_identical(e$field, paste0("model.", k))
  }
  expect_error(ulisse:::duration(-1), "max_time")
  expect_identical(ulisse:::duration(3600), "3600s")
})

rows_with <- function(n = 40) {
  set.seed(3)
  t <- runif(n, 0, 10)
  data.frame(t = t, y = sin(t) + rnorm(n, sd = 0.2), station = c("north", "south"), error = runif(n, 0.1, 0.3), repeats = sample(4, n, TRUE), known = rnorm(n))
}

test_that("noise, weights and an offset are columns or vectors", {
  needs_program()
  d <- rows_with()
  f <- fit_quickly(y ~ . - known + offset(known), d, noise = list(column = "error", by = "station"), weights = "repeats")
  g <- fit_quickly(y ~ t, d[c("t", "y", "station")], noise = list(column = d$error, by = "station"), weights = d$repeats, offset = d$known)
  expect_identical(ulisse:::job_info(f$job)$inputs, "t")
  expect_identical(ulisse:::job_summary(g$job)$draws_sha256, ulisse:::job_summary(f$job)$draws_sha256)
  p <- predict(f, d)
  expect_identical(predict(g, d[c("t", "station")], noise = d$error, weights = d$repeats, offset = d$known), p)
  moved <- predict(f, transform(d, known = known + 1), noise = 2 * d$error)
  expect_equal(moved$Estimate, p$Estimate + 1, tolerance = 1e-9)
  expect_equal(moved$Est.Error^2 - p$Est.Error^2, 3 * d$error^2, tolerance = 1e-4) # solves are to a relative error of 1e-4
  expect_equal(predict(f, d[c("t", "known")], latent = TRUE)$Estimate, p$Estimate, tolerance = 1e-9)
  expect_error(predict(f, d[c("t", "known")]), "noise: the fit had one of each row: .* in a column error or by noise =", class = "ulisse_bad_input")
  expect_error(predict(f, d, trials = d$repeats), "trials: the fit had none", class = "ulisse_bad_input")
  expect_error(predict(f, d, prior = 1), "prior: of rows there are noise, weights, offset, trials", class = "ulisse_bad_input")
})

test_that("classes are predicted", {
  needs_program()
  d <- transform(rows_with(), state = factor(ifelse(y > 0, "wet", "dry")))
  f <- fit_quickly(state ~ t, d, likelihood = "bernoulli", link = "probit")
  expect_true(any(grepl("link: probit", readLines(file.path(f$job$folder, "spec.yaml")))))
  wet <- d$state == "wet"
  p <- predict(f)$Estimate
  expect_equal(log_score(f, d), mean(log(ifelse(wet, p, 1 - p))))
  expect_equal(residuals(f), wet - p)
})

test_that("classes in order are predicted", {
  needs_program()
  d <- transform(rows_with(), grade = cut(y, c(-Inf, -0.5, 0.5, Inf), c("low", "mid", "high"), ordered_result = TRUE))
  f <- fit_quickly(grade ~ t, d, likelihood = "ordinal")
  p <- predict(f)
  shares <- as.matrix(p[c("p[low]", "p[mid]", "p[high]")])
  expect_equal(p$Estimate, as.vector(shares %*% 0:2))
  expect_equal(log_score(f, d), mean(log(shares[cbind(seq_len(nrow(d)), as.integer(d$grade))])))
})

test_that("classes without an order are predicted", {
  needs_program()
  d <- transform(rows_with(30), kind = factor(ifelse(y > 0.5, "oak", ifelse(y < -0.5, "elm", "ash")), c("oak", "ash", "elm")))
  f <- fit_quickly(kind ~ t, d, likelihood = "categorical")
  p <- predict(f)
  shares <- predict(f, type = "prob")
  expect_identical(colnames(shares), levels(d$kind))
  expect_equal(rowSums(shares), rep(1, nrow(d)))
  expect_identical(names(p), c("Estimate", "p[oak]", "p[ash]", "p[elm]"))
  expect_identical(p$Estimate, predict(f, type = "class"))
  expect_identical(levels(p$Estimate), levels(d$kind))
  expect_identical(as.integer(p$Estimate), apply(shares, 1, which.max))
  expect_equal(log_score(f, d), mean(log(shares[cbind(seq_len(nrow(d)), as.integer(d$kind))])))
  functions <- predict(f, d[1:3, ], latent = TRUE)
  expect_true(all(c("mean[oak]", "sd[oak]", "mean[elm]") %in% names(functions)))
  expect_error(residuals(f), "have no residuals", class = "ulisse_bad_input")
  expect_error(predict(the_fit(), type = "prob"), "is of classes", class = "ulisse_bad_input")
})

test_that("noise that is a function is predicted", {
  needs_program()
  d <- rows_with(30)
  f <- fit_quickly(y ~ t, d, likelihood = "heteroscedastic")
  p <- predict(f)
  function_alone <- predict(f, latent = TRUE)
  expect_equal(p$Estimate, function_alone$Estimate, tolerance = 1e-8)
  # Var(y) = Var(f) + E(noise variance), and the latter is at least the square of its root's mean.
  left <- p$Est.Error^2 - function_alone$Est.Error^2
  expect_equal(left, function_alone[["mean[noise_sd]"]]^2 + function_alone[["sd[noise_sd]"]]^2, tolerance = 1e-4)
})

test_that("what is said of rows has to fit them", {
  d <- rows_with(4)
  path <- tempfile(fileext = ".csv")
  for (bad in list(
    list(list(d, weights = 1:3), "weights: there are 3 values for 4 rows"),
    list(list(d, weights = "w"), "weights: data has no column w: it has t, y"),
    list(list(d, offset = c(1, NA, 2, 3)), "offset: a value is missing or infinite"),
    list(list(d, noise = letters[1:4]), "noise: give the name of a column, or a number for each row"),
    list(list(path, trials = 1:4), "trials: of a table in a file name the column"),
    list(list(d, spec = list(data = list(target = c("a", "b")))), "data.target: name one column")))
    expect_error(do.call(ulisse, c(list(y ~ t), bad[[1]])), bad[[2]], class = "ulisse_bad_input")
  expect_error(ulisse(y ~ t + offset(known), path), "name the column of the offset: offset =", class = "ulisse_bad_input")
})

test_that("a fit is updated, and read back from a file", {
  needs_program()
  d <- small_data()
  f <- ulisse(response ~ time + dose, d, chains = 2, draws = 20, rhat = 3, ess = 1, threads = 1, progress = FALSE)
  g <- update(f, . ~ . - dose, seed = 3)
  expect_identical(ulisse:::job_info(g$job)$inputs, "time")
  path <- tempfile(fileext = ".rds")
  saveRDS(f, path)
  code <- sprintf("f <- readRDS(%s); cat(sprintf('%%.17g', predict(f, data.frame(time = 1, dose = 0.5))$Estimate), dim(posterior::as_draws_matrix(f)))", deparse(path))
  out <- processx::run(file.path(R.home("bin"), "Rscript"), c("-e", paste("library(ulisse);", code)), env = c("current", R_LIBS = paste(.libPaths(), collapse = ":")), error_on_status = FALSE)
  want <- predict(f, data.frame(time = 1, dose = 0.5))$Estimate
  expect_identical(out$stdout, paste(sprintf("%.17g", want), 40, length(posterior::variables(as_draws(f)))), info = out$stderr)
})

test_that("a table in a file is fitted where it lies", {
  needs_program()
  path <- tempfile(fileext = ".csv")
  ulisse:::write_table(small_data(), path)
  f <- fit_quickly(response ~ ., path, ard = TRUE)
  expect_identical(predict(f, small_data())$Estimate, predict(the_fit())$Estimate)
})

test_that("pictures are drawn", {
  needs_program()
  grDevices::pdf(NULL)
  on.exit(grDevices::dev.off())
  expect_message(plot(the_fit()), "more: choose with variable")
  expect_silent(plot(the_fit(), "noise_sd"))
  expect_error(plot(the_fit(), "nothing"), "there is no nothing")
})
