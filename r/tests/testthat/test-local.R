test_that("results are those that the program wrote", {
  needs_program()
  job <- once_done()
  truth <- draws_in(job$folder)
  d <- as_draws_df(job)
  expect_identical(d$noise_sd, truth$noise_sd)
  expect_identical(posterior::variables(d), summary(job)$name)
  expect_identical(d[["tau[dose]"]], truth[["tau.2"]]) # CmdStan's files number the inputs
  expect_identical(d[["lengthscale[time]"]], truth[["lengthscale.1"]])
  expect_identical(posterior::ndraws(d), 40L)
  expect_identical(posterior::nchains(d), 2L)
  expect_s3_class(as_draws(job), "draws_df")
  expect_identical(dim(as_draws_array(job))[1:2], c(20L, 2L))
  expect_s3_class(as_draws_rvars(job), "draws_rvars")
  expect_identical(nrow(as_draws_matrix(job)), 40L)
  s <- summary(job)
  expect_equal(s["noise_sd", "mean"], mean(truth$noise_sd))
  expect_true(any(vapply(ulisse_logs(job), function(l) identical(l$msg, "gradient"), NA)))
  expect_output(print(job), "ulisse job small .*converged  20 of 20 draws a chain")
})

test_that("predictions are those of dense algebra", {
  needs_program()
  job <- once_done()
  data <- small_data()
  new <- small_data(5, seed = 2)
  p <- predict(job, new, probs = c(0.1, 0.9), draws = 40)
  names <- c("time", "dose")
  scale_of <- function(x) c(mean(x), sqrt(mean((x - mean(x))^2)))
  scales <- lapply(data, scale_of)
  standard <- function(d, k) (d[[k]] - scales[[k]][[1]]) / scales[[k]][[2]]
  z <- sapply(names, function(k) standard(data, k))
  s <- sapply(names, function(k) standard(new, k))
  y <- standard(data, "response")
  # tau = 1/(2 l^2), so that the scaled distance sqrt(5) r is sqrt(10 sum tau (x-x')^2)
  cov <- function(a, b, sigma, tau) {
    d2 <- 0
    for (k in 1:2) d2 <- d2 + tau[[k]] * outer(a[, k], b[, k], "-")^2
    r <- sqrt(10 * d2)
    sigma * (1 + r + r^2 / 3) * exp(-r)
  }
  d <- as_draws_df(job)
  width <- scales$response[[2]]
  noise <- (d$noise_sd / width)^2
  signal <- if ("signal_sd" %in% names(d)) (d$signal_sd / width)^2 else d$sigma
  lengths <- c("lengthscale[time]", "lengthscale[dose]")
  parts <- lapply(seq_len(nrow(d)), function(i) {
    tau <- 1 / (2 * (c(d[[lengths[[1]]]][[i]], d[[lengths[[2]]]][[i]]) / c(scales$time[[2]], scales$dose[[2]]))^2)
    sigma <- signal[[i]]
    lambda <- noise[[i]]
    k <- cov(z, z, sigma, tau) + lambda * diag(nrow(z))
    ks <- cov(s, z, sigma, tau)
    list(mean = drop(ks %*% solve(k, y)), var = sigma + lambda - rowSums(ks * t(solve(k, t(ks)))))
  })
  means <- sapply(parts, `[[`, "mean")
  vars <- sapply(parts, `[[`, "var")
  mean <- rowMeans(means)
  sd <- sqrt(rowMeans(vars + means^2) - mean^2)
  # 1e-2 of an sd: the program's solves are to a tolerance
  expect_lt(max(abs(p$Estimate - (scales$response[[1]] + scales$response[[2]] * mean))), 1e-2 * min(p$Est.Error))
  expect_equal(p$Est.Error, scales$response[[2]] * sd, tolerance = 2e-3)
  standard_y <- standard(new, "response")
  density <- log(rowMeans(dnorm(standard_y, means, sqrt(vars)))) - log(scales$response[[2]])
  expect_equal(attr(p, "log_density"), density, tolerance = 2e-3)
  expect_true(all(p$Q10 < p$Estimate & p$Estimate < p$Q90))
  expect_true(all(predict(job, new, latent = TRUE, draws = 40)$Est.Error < p$Est.Error))
  expect_error(predict(job, new["time"]), "newdata has no column dose", class = "ulisse_bad_input")
  expect_error(predict(job, new, probs = 2), "probs")
})

test_that("a specification that will not do is refused with its field", {
  needs_program()
  e <- expect_error(ulisse_run(small_spec(model = list(kernel = "rbff")), small_data()), "^model.kernel: .*there is no covariance \"rbff\"", class = "ulisse_bad_specification")
  expect_identical(e$field, "model.kernel")
  expect_null(e$line)
  e <- expect_error(ulisse_run(small_spec(name = ""), small_data()), "^name: a job needs a name", class = "ulisse_bad_specification")
  expect_identical(e$field, "name")
  text <- "name: a\ndata: {path: t, target: response}\nmodel:\n  kernel: rbff\n"
  e <- expect_error(ulisse_run(text, small_data()), class = "ulisse_bad_specification")
  expect_identical(e[c("field", "line", "column")], list(field = "model.kernel", line = 4L, column = 11L))
  bad <- small_data()
  bad$dose[[3]] <- NA
  expect_error(ulisse_run(small_spec(), bad), "^row 3, column \"dose\"", class = "ulisse_bad_input")
  expect_error(ulisse_run("nowhere.yaml"), "cannot read the specification", class = "ulisse_bad_input")
  expect_error(ulisse_load(tempdir()), "not the folder of a run")
})

signal_interrupt <- function() stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))

endless <- list(rhat = 1.0001, ess = 1e6, max_draws = 400, max_time = "5m")

test_that("a run is paused and continued to the draws that it would have had", {
  needs_program()
  spec <- small_spec(stop = endless)
  whole <- ulisse_run(spec, small_data(), threads = 1)
  expect_warning(ulisse_watch(whole, FALSE), "small has not converged: it ended by max_draws", class = "ulisse_not_converged")
  job <- ulisse_run(spec, small_data(), threads = 1)
  ulisse_pause(job)
  expect_identical(ulisse:::job_status(job)$state, "paused")
  expect_error(summary(job), "no draws to tell of|has not ended", class = "ulisse_error")
  ulisse_resume(job)
  expect_warning(ulisse_watch(job, FALSE), class = "ulisse_not_converged")
  expect_identical(ulisse:::job_summary(job)$draws_sha256, ulisse:::job_summary(whole)$draws_sha256)
  other <- ulisse_run(small_spec(stop = endless), small_data(), threads = 1)
  expect_error(ulisse_watch(ulisse_cancel(other), FALSE), "small was cancelled", class = "ulisse_job_failed")
})

test_that("an interrupt stops the run, and nothing is left when nobody holds it", {
  needs_program()
  job <- ulisse_run(small_spec(stop = modifyList(endless, list(max_draws = 1000000))), small_data(), threads = 1)
  process <- job$process
  folder <- job$folder
  expect_true(process$is_alive())
  looks <- 0
  expect_message(ulisse:::job_follow(job, function(s) {
    looks <<- looks + 1
    if (looks == 1) signal_interrupt()
  }), "interrupted; ulisse_resume\\(\\) continues")
  expect_false(process$is_alive())
  expect_true(dir.exists(folder))
  rm(job)
  gc()
  expect_false(dir.exists(folder))
})

test_that("there is a word where there is no program", {
  skip_on_os("windows")
  old <- Sys.getenv(c("ULISSE_BINARY", "PATH"), names = TRUE, unset = NA)
  on.exit({
    do.call(Sys.setenv, as.list(old[!is.na(old)]))
    if (is.na(old[["ULISSE_BINARY"]])) Sys.unsetenv("ULISSE_BINARY")
  })
  Sys.setenv(ULISSE_BINARY = "/nowhere/ulisse")
  expect_error(ulisse_binary(), "ULISSE_BINARY names /nowhere/ulisse, which is not there", class = "ulisse_error")
  Sys.unsetenv("ULISSE_BINARY")
  Sys.setenv(PATH = "")
  expect_error(ulisse_binary(), "there is no program ulisse", class = "ulisse_error")
  expect_false(ulisse_available())
})
