# Runs: what those on this machine and those in a cluster have in common. A job is an environment, of class
# ulisse_local or ulisse_remote, and of class ulisse_job.

ended_states <- c("converged", "unconverged", "cancelled", "failed")

new_status <- function(state, draws = 0L, wanted = 0L, rhat = NA_real_, ess = NA_real_, seconds = 0, message = "") {
  structure(class = "ulisse_status", list(state = state, draws = draws, wanted = wanted, rhat = rhat, ess = ess, seconds = seconds, message = message))
}

describe_status <- function(s) {
  clock <- if (s$seconds >= 3600) sprintf("%d:%02d:%02d", s$seconds %/% 3600, s$seconds %% 3600 %/% 60, floor(s$seconds %% 60))
    else sprintf("%d:%02d", s$seconds %/% 60, floor(s$seconds %% 60))
  paste(c(s$state,
    if (s$draws > 0) sprintf("%d of %d draws a chain", s$draws, s$wanted),
    if (!is.na(s$rhat)) sprintf("R-hat %.3f", s$rhat),
    if (!is.na(s$ess)) sprintf("ESS %.0f", s$ess),
    clock,
    if (nzchar(s$message)) s$message), collapse = "  ")
}

print.ulisse_status <- function(x, ...) {
  cat(describe_status(x), "\n", sep = "")
  invisible(x)
}

print.ulisse_job <- function(x, ...) {
  cat(sprintf("ulisse job %s (%s): %s\n", job_name(x), x$id, describe_status(job_status(x))))
  invisible(x)
}

# What differs.
job_name <- function(job) UseMethod("job_name")
job_status <- function(job) UseMethod("job_status")
# Call f with the status now and whenever it may have changed, until the run has ended or stopped.
job_follow <- function(job, f) UseMethod("job_follow")
job_summary <- function(job) UseMethod("job_summary")
# The draws as a data frame with chain__ and draw__.
job_draws <- function(job) UseMethod("job_draws")
# How the table was read: the names of inputs, target, and of the columns with what is said of each row, and levels.
job_info <- function(job) UseMethod("job_info")
job_predict <- function(job, rows, probs, latent, draws) UseMethod("job_predict")
# Stop with why the run failed.
job_failure <- function(job, status) UseMethod("job_failure")
job_action <- function(job, action) UseMethod("job_action")
ulisse_extend <- function(job, draws) UseMethod("ulisse_extend")
ulisse_logs <- function(job) UseMethod("ulisse_logs")

the_job <- function(x) if (inherits(x, "ulisse_fit")) x$job else if (inherits(x, "ulisse_job")) x else fail("bad_input", "give a job or a fit of ulisse")

ulisse_pause <- function(job) invisible(job_action(the_job(job), "pause"))
ulisse_resume <- function(job) invisible(job_action(the_job(job), "resume"))
ulisse_cancel <- function(job) invisible(job_action(the_job(job), "cancel"))

ulisse_watch <- function(job, progress = TRUE) {
  job <- the_job(job)
  show <- new_display(job_name(job), progress)
  status <- NULL
  tryCatch(job_follow(job, function(s) {
    status <<- s
    show$show(s)
  }), finally = show$close())
  job$drawn <- NULL
  if (status$state == "failed") job_failure(job, status)
  if (status$state == "cancelled") fail("job_failed", paste(job_name(job), "was cancelled"))
  if (status$state == "unconverged") warn_not_converged(doubts(job))
  invisible(job)
}

# Say why a run that ended is not to be trusted yet.
doubts <- function(job) {
  s <- job_summary(job)
  text <- sprintf("%s has not converged: it ended by %s", job_name(job), if (is.null(s$stop_reason)) "its limits" else s$stop_reason)
  said <- unlist(s$warnings)
  if (!length(said)) return(text)
  rest <- if (length(said) > 3) sprintf("; and %d more", length(said) - 3L) else ""
  paste0(text, ". ", paste(utils::head(said, 3), collapse = "; "), rest)
}

# Shows how a run is going: on a terminal one line that changes, elsewhere a line now and then.
new_display <- function(name, progress) {
  state <- ""
  told <- -Inf
  width <- 0L
  live <- isatty(stderr()) && interactive()
  list(
    show = function(s) {
      if (!progress) return()
      line <- describe_status(s)
      if (live) {
        done <- if (s$wanted > 0) round(20 * min(1, s$draws / s$wanted)) else 0
        line <- sprintf("%s [%s%s] %s", name, strrep("=", done), strrep(" ", 20 - done), line)
        message("\r", formatC(line, width = -width), appendLF = FALSE)
        width <<- nchar(line)
        return()
      }
      now <- proc.time()[["elapsed"]]
      if (s$state == state && now - told < 10) return()
      state <<- s$state
      told <<- now
      message(name, ": ", line)
    },
    close = function() if (live && width > 0) message("")
  )
}

# What is the same.

summary.ulisse_job <- function(object, ...) {
  s <- job_summary(object)
  rows <- s$parameters
  if (!length(rows)) return(data.frame(name = character()))
  columns <- Filter(function(k) k == "name" || all(vapply(rows, function(r) is.null(r[[k]]) || is.numeric(r[[k]]), NA)),
                    unique(unlist(lapply(rows, names))))
  value <- function(row, k) if (is.null(row[[k]])) NA else row[[k]]
  out <- lapply(columns, function(k) vapply(rows, function(r) value(r, k), if (k == "name") "" else 0))
  out <- as.data.frame(stats::setNames(out, columns), check.names = FALSE)
  rownames(out) <- out$name
  out
}

# What results and the API tell of how the table was read.
info_of <- function(data) {
  named <- function(x) if (length(x) && nzchar(x)) x
  noise <- data$noise
  list(inputs = unlist(data$inputs), target = data$target, offset = named(data$offset), classes = unlist(data$classes),
    levels = lapply(data$levels, function(l) unlist(l, use.names = FALSE)),
    noise = list(column = named(noise$column), weights = named(noise$weights), by = named(noise$by), levels = unlist(noise$levels)))
}

# The places, from 0, of values among the names of a category's levels.
codes <- function(x, levels, what) {
  at <- match(as.character(x), levels)
  if (any(is.na(at) & !is.na(x))) fail("bad_input", sprintf("%s has a value that is none of %s", what, paste(levels, collapse = ", ")))
  at - 1
}

# The targets of rows as numbers: classes as 0 and 1.
target_of <- function(info, rows) {
  y <- rows[[info$target]]
  if (is.logical(y)) y <- as.integer(y)
  if (length(info$classes)) codes(y, info$classes, info$target) else as.numeric(y)
}

job_frame <- function(job) {
  if (!is.null(job$drawn)) return(job$drawn)
  drawn <- job_draws(job)
  if (job_status(job)$state %in% ended_states) job$drawn <- drawn
  drawn
}

as_draws_df.ulisse_job <- function(x, ...) {
  d <- job_frame(x)
  m <- d[setdiff(names(d), c("chain__", "draw__"))]
  m$.chain <- as.integer(d$chain__)
  m$.iteration <- as.integer(stats::ave(d$draw__, d$chain__, FUN = seq_along))
  posterior::as_draws_df(m)
}

as_draws.ulisse_job <- function(x, ...) as_draws_df(x)
as_draws_array.ulisse_job <- function(x, ...) posterior::as_draws_array(as_draws_df(x))
as_draws_matrix.ulisse_job <- function(x, ...) posterior::as_draws_matrix(as_draws_df(x))
as_draws_rvars.ulisse_job <- function(x, ...) posterior::as_draws_rvars(as_draws_df(x))

predict.ulisse_job <- function(object, newdata, probs = c(0.025, 0.975), latent = FALSE, draws = NULL, ...) {
  if (!all(probs > 0 & probs < 1)) fail("bad_input", "probs: give probabilities between 0 and 1")
  info <- job_info(object)
  of_noise <- c(info$noise$column, info$noise$by)
  needed <- c(info$inputs, info$offset, if (!latent) of_noise)
  missing <- setdiff(needed, names(newdata))
  if (length(missing)) fail("bad_input", sprintf("newdata has no column %s: it has %s", paste(missing, collapse = ", "), paste(names(newdata), collapse = ", ")))
  keep <- unique(c(needed, intersect(c(of_noise, info$noise$weights, info$target), names(newdata))))
  p <- job_predict(object, as.data.frame(newdata)[keep], probs, latent, draws)
  out <- if (is.null(p$mean)) data.frame(Estimate = likeliest(p$probabilities, info$classes)) else data.frame(Estimate = p$mean, Est.Error = p$sd)
  if (!is.null(p$mean)) for (k in seq_along(probs)) out[[paste0("Q", format(100 * probs[[k]]))]] <- p$quantiles[, k]
  for (name in names(p$functions)) out[[name]] <- p$functions[[name]] # of several latent functions
  for (name in names(p$probabilities)) out[[name]] <- p$probabilities[[name]] # of three or more classes, or of classes without an order
  attr(out, "log_density") <- p$log_density
  out
}

# The classes of the greatest probability, a factor.
likeliest <- function(probabilities, classes) factor(classes[max.col(as.matrix(as.data.frame(probabilities)), "first")], classes)

# The text of a specification, and whether it was made here: of a list.
spec_text <- function(spec) {
  if (is.list(spec) && length(spec$data$target) > 1) fail("bad_input", "data.target: name one column: each target has a run of its own")
  if (is.list(spec)) return(list(text = to_json(spec), generated = TRUE))
  if (length(spec) == 1 && !grepl("\n", spec)) {
    if (!file.exists(spec)) fail("bad_input", paste("cannot read the specification", spec))
    return(list(text = paste(readLines(spec, warn = FALSE), collapse = "\n"), generated = FALSE, path = spec))
  }
  list(text = paste(spec, collapse = "\n"), generated = FALSE)
}
