needs_program <- function() skip_if_not(ulisse_available(), "there is no program ulisse")

# A run of a second. Its limits are so wide that it ends after the first look.
quick <- list(sampler = list(chains = 2, draws = 20, warmup = 20), stop = list(rhat = 3, ess = 1, max_draws = 40))

small_data <- function(n = 60, seed = 1) {
  set.seed(seed)
  d <- data.frame(time = runif(n, 0, 10), dose = runif(n))
  d$response <- sin(d$time) + d$dose + rnorm(n, sd = 0.2)
  d
}

small_spec <- function(...) {
  base <- c(list(name = "small", data = list(path = "table", target = "response"), model = list(kernel = "matern52", ard = TRUE)), quick)
  modifyList(base, list(...))
}

fit_quickly <- function(formula, data, ..., kernel = "matern52") {
  ulisse(formula, data, kernel = kernel, chains = 2, draws = 20, rhat = 3, ess = 1, spec = list(sampler = list(warmup = 20)), threads = 1,
    progress = FALSE, ...)
}

# The draws that the program wrote, as CmdStan's reader would see them.
draws_in <- function(folder) {
  files <- sort(list.files(file.path(folder, "draws"), full.names = TRUE))
  do.call(rbind, lapply(files, utils::read.csv, comment.char = "#", check.names = FALSE))
}

once_done <- local({
  job <- NULL
  function() {
    if (is.null(job)) job <<- ulisse_watch(ulisse_run(small_spec(), small_data(), threads = 1), progress = FALSE)
    job
  }
})
