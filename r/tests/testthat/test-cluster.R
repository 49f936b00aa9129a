# Clusters on this machine, by ulisse dev, until the end of these tests.
devs <- list()

the_dev <- function(tls = FALSE) {
  needs_program()
  skip_on_os("windows")
  kind <- if (tls) "tls" else "plain"
  if (is.null(devs[[kind]])) devs[[kind]] <<- start_dev(if (tls) "--tls")
  devs[[kind]]
}

the_cluster <- function() the_dev()$cluster

start_dev <- function(...) {
  dir <- tempfile("dev-")
  dir.create(dir)
  log <- file.path(dir, "log")
  process <- processx::process$new(ulisse_binary(), c("dev", "--auth", "none", "--workers", "1", "--cores", "1", "--dir", file.path(dir, "dev"), ...), stdout = log, stderr = "2>&1")
  until <- function(ready) {
    end <- Sys.time() + 180
    while (!isTRUE(tryCatch(ready(), error = function(e) FALSE))) {
      if (Sys.time() > end || !process$is_alive()) stop(paste(readLines(log), collapse = "\n"))
      Sys.sleep(0.1)
    }
  }
  until(function() file.exists(file.path(dir, "dev", "env")))
  at <- jsonlite::fromJSON(file.path(dir, "dev", "processes.json"))
  at <- at$addresses[at$role == "coordinator", ]
  env <- readLines(file.path(dir, "dev", "env"))
  value <- function(name) {
    line <- grep(paste0("^export ", name, "="), env, value = TRUE)
    if (length(line)) gsub("^'|'$|^\"|\"$", "", sub("^[^=]*=", "", line))
  }
  files <- Filter(Negate(is.null), list(tls_ca = value("ULISSE_TLS_CA"), tls_cert = value("ULISSE_TLS_CERT"), tls_key = value("ULISSE_TLS_KEY")))
  url <- paste0(if (length(files)) "https://" else "http://", at$http)
  cluster <- do.call(ulisse_connect, c(list(url), files))
  until(function() length(ulisse:::call_api(cluster, "GET", "/v1/workers")$workers) == 1)
  list(process = process, cluster = cluster, url = url, grpc = at$grpc, files = files, dir = dir)
}

withr_env <- function(values, code) {
  old <- Sys.getenv(names(values), names = TRUE, unset = NA)
  on.exit(for (k in names(old)) if (is.na(old[[k]])) Sys.unsetenv(k) else do.call(Sys.setenv, as.list(old[k])))
  do.call(Sys.setenv, as.list(values))
  code
}

test_that("a job's draws and predictions are those of this machine", {
  cluster <- the_cluster()
  here <- once_done()
  job <- ulisse_watch(ulisse_submit(small_spec(), small_data(), cluster), FALSE)
  expect_identical(as_draws_df(job)$noise_sd, as_draws_df(here)$noise_sd)
  expect_identical(ulisse:::job_info(job), ulisse:::job_info(here))
  expect_identical(summary(job)$mean, summary(here)$mean)
  new <- small_data(200, seed = 2) # more than a batch
  expect_identical(predict(job, new, c(0.1, 0.5)), predict(here, new, c(0.1, 0.5)))
  bare <- predict(job, new[1, c("dose", "time")], numeric(), latent = TRUE, draws = 7)
  expect_identical(bare, predict(here, new[1, c("dose", "time")], numeric(), latent = TRUE, draws = 7))
  expect_output(print(job), "converged  20 of 20 draws a chain")
  fit <- fit_quickly(response ~ time + dose, small_data(), ard = TRUE, cluster = cluster)
  expect_identical(as_draws_df(fit)$noise_sd, as_draws_df(here)$noise_sd)
  expect_identical(predict(fit), predict(fit, small_data()))
})

test_that("what is said of rows goes to a cluster", {
  needs_program()
  set.seed(4)
  d <- data.frame(t = runif(40, 0, 10), plot = c(3, 7), known = rnorm(40), error = runif(40, 0.1, 0.3), w = sample(4, 40, TRUE))
  d$y <- sin(d$t) + rnorm(40, sd = 0.2)
  d$wet <- ifelse(d$y > 0, "yes", "no")
  noisy <- list(y ~ t, d, noise = list(column = "error", by = "plot"), weights = "w")
  classes <- list(wet ~ t + plot, d, kernel = "rbf(t) * hamming(plot)", categories = "plot", likelihood = "bernoulli", offset = "known")
  d$kind <- factor(ifelse(d$y > 0.5, "oak", ifelse(d$y < -0.5, "elm", "ash")))
  kinds <- list(kind ~ t, d, likelihood = "categorical")
  functions <- list(y ~ t, d, likelihood = "heteroscedastic")
  for (how in list(noisy, kinds, functions, classes)) {
    f <- lapply(list(NULL, the_cluster()), function(cluster) do.call(fit_quickly, c(how, list(cluster = cluster))))
    expect_identical(predict(f[[2]], d), predict(f[[1]], d))
    expect_identical(log_score(f[[2]], d), log_score(f[[1]], d))
    bare <- d[c("t", "plot", "known")]
    expect_identical(predict(f[[2]], bare, latent = TRUE), predict(f[[1]], bare, latent = TRUE))
  }
  expect_error(predict(f[[2]], transform(d, plot = 1)), "the column plot has a value that is none of 3, 7", class = "ulisse_bad_input")
})

test_that("jobs are steered", {
  cluster <- the_cluster()
  long <- small_spec(name = "long", stop = list(rhat = 1.0001, ess = 1e9, max_draws = 1e6))
  job <- ulisse_submit(long, small_data(), cluster, client_id = "once")
  expect_identical(ulisse_submit(long, small_data(), cluster, client_id = "once")$id, job$id)
  end <- Sys.time() + 180
  while (ulisse:::job_status(job)$draws == 0 && Sys.time() < end) Sys.sleep(0.05)
  expect_gt(nrow(as_draws_df(job)), 0)
  expect_identical(ulisse:::job_status(ulisse_pause(job))$state, "paused")
  ulisse_resume(job)
  found <- ulisse_jobs("long", cluster = cluster)
  expect_identical(found$id, job$id)
  expect_s3_class(found$submitted, "POSIXct")
  expect_identical(ulisse_job("long", cluster)$id, job$id)
  expect_error(ulisse_watch(ulisse_cancel(job), FALSE), "long was cancelled", class = "ulisse_job_failed")
  expect_true(any(vapply(ulisse_logs(job), function(l) identical(l$msg, "gradient"), NA)))
  expect_error(ulisse_job("nobody", cluster), "there is no job", class = "ulisse_not_found")
  short <- ulisse_watch(ulisse_submit(small_spec(), small_data(), cluster), FALSE)
  before <- as_draws_df(short)$noise_sd
  after <- as_draws_array(ulisse_watch(ulisse_extend(short, 10), FALSE))
  expect_gte(dim(after)[[1]], 30)
  expect_identical(as.numeric(after[1:20, , "noise_sd"]), before)
})

test_that("TLS asks for certificates", {
  dev <- the_dev(tls = TRUE)
  job <- ulisse_watch(ulisse_submit(small_spec(), small_data(), dev$cluster), FALSE)
  expect_identical(as_draws_df(job)$noise_sd, as_draws_df(once_done())$noise_sd)
  expect_error(ulisse_jobs(cluster = dev$url), "certificate that is not to be trusted", class = "ulisse_unreachable")
  both <- do.call(ulisse_connect, c(list(c("https://127.0.0.1:1", dev$url)), dev$files))
  expect_s3_class(ulisse_jobs(cluster = both), "data.frame")
  expect_identical(both$addresses[[1]], dev$url)
})

test_that("errors are one sentence, of a class", {
  cluster <- the_cluster()
  e <- expect_error(ulisse_submit(small_spec(model = list(kernel = "rbff")), small_data(), cluster), "^model.kernel: .*\"rbff\"", class = "ulisse_bad_specification")
  expect_identical(e$field, "model.kernel")
  expect_error(ulisse_jobs(cluster = "http://127.0.0.1:1"), "no answer from http://127.0.0.1:1: connection refused", class = "ulisse_unreachable")
  expect_error(ulisse_connect("http://10.0.0.1:7002", token = "x"), "a token goes over TLS", class = "ulisse_bad_input")
  expect_error(ulisse:::api_error(list(code = 7, message = "m")), "m", class = "ulisse_permission_denied")
  expect_error(ulisse:::api_error(list(code = 8, message = "m")), "m", class = "ulisse_error")
  expect_error(ulisse:::refused("http://a", 302, charToRaw("<html>")), "asks who you are", class = "ulisse_permission_denied")
})

test_that("contexts are those of the command line", {
  dev <- the_dev(tls = TRUE)
  none <- c(ULISSE = "", ULISSE_COORDINATORS = "", ULISSE_CONTEXT = "", ULISSE_TLS_CA = "", ULISSE_TLS_CERT = "", ULISSE_TLS_KEY = "",
    ULISSE_CONFIG = file.path(dev$dir, "contexts.yaml"))
  withr_env(none, {
    files <- sprintf("--%s=%s", gsub("_", "-", names(dev$files)), unlist(dev$files))
    ulisse:::call_program(c("context", "add", "lab", dev$grpc, files))
    expect_identical(ulisse_connect("lab")$addresses, dev$url)
    expect_s3_class(ulisse_jobs(), "data.frame") # it is the current one
    expect_error(ulisse_connect("home"), "there is no context \"home\"", class = "ulisse_bad_input")
  })
})

for (dev in devs) {
  dev$process$signal(15)
  dev$process$wait(180000)
}
