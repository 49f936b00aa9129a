# Runs on this machine: the program as a child process, in a folder of its own.

stop_time <- 30 # seconds that a run has to stop in peace

ulisse_run <- function(spec, data = NULL, folder = NULL, threads = NULL) {
  job <- new_local(folder, threads)
  text <- spec_text(spec)
  job$generated <- text$generated
  tmp <- tempfile("ulisse-")
  dir.create(tmp)
  on.exit(unlink(tmp, recursive = TRUE))
  path <- text$path
  if (is.null(path)) writeLines(text$text, path <- file.path(tmp, "ulisse-spec.json"), useBytes = TRUE)
  args <- c("run", path, "--out", job$folder, local_flags(job))
  if (is.null(data)) {
    local_start(job, args)
  } else if (is.character(data)) {
    local_start(job, c(args, "--data", normalizePath(data, mustWork = FALSE)))
  } else {
    local_start(job, c(args, "--data", "-"), write_table(data, file.path(tmp, "table.csv")))
  }
  local_until_begun(job)
  job
}

ulisse_load <- function(folder) {
  if (!file.exists(file.path(folder, "spec.yaml"))) fail("bad_input", paste(folder, "is not the folder of a run"))
  job <- new_local(folder, NULL)
  job$generated <- FALSE
  job
}

new_local <- function(folder, threads) {
  job <- new.env(parent = emptyenv())
  class(job) <- c("ulisse_local", "ulisse_job")
  job$threads <- threads
  job$generated <- TRUE
  job$cancelled <- FALSE
  local_place(job, folder)
  job
}

# Give the run its folder: one of its own goes with it.
local_place <- function(job, folder) {
  if (is.null(folder)) {
    job$own <- tempfile("ulisse-")
    dir.create(job$own)
    job$folder <- file.path(job$own, "run")
  } else {
    job$folder <- normalizePath(folder, mustWork = FALSE)
  }
  job$id <- job$folder
  job$log <- new_log()
  owner <- Sys.getpid()
  reg.finalizer(job, function(job) {
    if (Sys.getpid() != owner) return() # a fork has a copy of the object, and nothing of what it holds
    local_stop(job)
    if (!is.null(job$own)) unlink(job$own, recursive = TRUE)
  }, onexit = TRUE)
}

local_flags <- function(job) c("--quiet", if (!is.null(job$threads)) c("--threads", as.character(job$threads)))

local_start <- function(job, args, stdin = NULL) {
  binary <- ulisse_binary()
  job$cancelled <- FALSE
  job$drawn <- NULL
  read_log(job)
  job$log$begun <- FALSE
  job$err <- tempfile("ulisse-")
  # processx runs it in a session of its own, so that a Ctrl-C meant for R does not reach it twice.
  job$process <- processx::process$new(binary, args, stdin = stdin, stdout = NULL, stderr = job$err, cleanup = TRUE)
}

local_until_begun <- function(job) {
  tryCatch(
    while (local_running(job)) {
      read_log(job)
      if (job$log$begun) return(invisible(job))
      Sys.sleep(0.05)
    },
    interrupt = function(e) {
      local_stop(job)
      fail("", "interrupted before the run had begun")
    }
  )
  if (!job$process$get_exit_status() %in% c(0, 3, 130)) job_failure(job, NULL)
  invisible(job)
}

local_running <- function(job) !is.null(job$process) && job$process$is_alive()

local_stop <- function(job) {
  if (!local_running(job)) return(invisible(job))
  job$process$interrupt()
  if (!job$process$wait(1000 * stop_time)$is_alive()) return(invisible(job))
  job$process$kill() # it is crash-safe
  invisible(job)
}

local_said <- function(job) if (!is.null(job$err) && file.exists(job$err)) paste(readLines(job$err, warn = FALSE), collapse = "\n") else ""

job_action.ulisse_local <- function(job, action) {
  if (action == "resume") {
    local_restore(job)
    if (!local_running(job)) {
      local_start(job, c("run", "--resume", job$folder, local_flags(job)))
      local_until_begun(job)
    }
    return(job)
  }
  local_stop(job)
  read_log(job)
  if (action == "cancel") job$cancelled <- !job_status(job)$state %in% ended_states
  job
}

ulisse_extend.ulisse_local <- function(job, draws) {
  local_restore(job)
  if (local_running(job)) fail("", paste(job_name(job), "is at work: pause it first, or wait for its end"))
  local_start(job, c("extend", paste0(job$folder, "/"), "--draws", as.character(draws)))
  local_until_begun(job)
}

ulisse_extend.ulisse_fit <- function(job, draws) {
  ulisse_extend(job$job, draws)
  finish_fit(job)
}

job_name.ulisse_local <- function(job) if (nzchar(job$log$name)) job$log$name else basename(job$folder)

job_status.ulisse_local <- function(job) {
  running <- local_running(job) # before looking: what is written last is seen
  read_log(job)
  log <- job$log
  now <- proc.time()[["elapsed"]]
  if (running) {
    if (!is.na(log$clock)) log$seconds <- log$seconds + now - log$clock
    log$clock <- now
  }
  code <- if (is.null(job$process) || running) NA else job$process$get_exit_status()
  state <- if (running) log$phase
    else if (job$cancelled) "cancelled"
    else if (!is.na(code) && !code %in% c(0, 3, 130)) "failed"
    else if (!identical(as.integer(code), 130L) && has_results(job)) if (isTRUE(job_summary(job)$converged)) "converged" else "unconverged"
    else "paused"
  message <- if (state == "failed") conditionMessage(tryCatch(job_failure(job, NULL), error = identity)) else ""
  new_status(state, log_draws(log), local_wanted(job), log$rhat, log$ess, log$seconds, message)
}

has_results <- function(job) !is.null(job$files) || file.exists(file.path(job$folder, "summary.json"))

# sampler.draws of the specification that the program wrote.
local_wanted <- function(job) {
  path <- file.path(job$folder, "spec.yaml")
  if (!file.exists(path)) return(0L)
  line <- grep("^ +draws: [0-9]+$", readLines(path, warn = FALSE), value = TRUE)
  if (length(line)) as.integer(sub(".*: ", "", line[[1]])) else 0L
}

job_follow.ulisse_local <- function(job, f) {
  wait <- 0.05
  tryCatch(
    while (local_running(job)) {
      f(job_status(job))
      Sys.sleep(wait)
      wait <- min(0.5, 1.2 * wait)
    },
    interrupt = function(e) {
      local_stop(job) # nothing is lost
      message("interrupted; ulisse_resume() continues")
    }
  )
  f(job_status(job))
}

job_failure.ulisse_local <- function(job, status) fail_program(job$process$get_exit_status(), local_said(job), job$generated)

# What the program tells of the folder.
local_tell <- function(job, command, ...) {
  local_restore(job)
  tryCatch(call_program(c(command, paste0(job$folder, "/"), ...)), ulisse_bad_input = function(e) {
    if (file.exists(file.path(job$folder, "result.json"))) stop(e)
    fail("", sprintf("%s has no draws to tell of yet (%s): ulisse_watch() waits for them", job_name(job), job_status(job)$state))
  })
}

job_summary.ulisse_local <- function(job) {
  path <- file.path(job$folder, "summary.json")
  local_restore(job)
  text <- if (!local_running(job) && file.exists(path)) paste(readLines(path, warn = FALSE), collapse = "\n")
    else local_tell(job, "summary", "--json")
  jsonlite::fromJSON(text, simplifyVector = FALSE)
}

job_draws.ulisse_local <- function(job) {
  out <- tempfile("ulisse-", fileext = ".csv")
  on.exit(unlink(out))
  local_tell(job, "draws", "--out", out)
  read_numbers(out)
}

job_info.ulisse_local <- function(job) {
  local_restore(job)
  path <- file.path(job$folder, "result.json")
  if (!file.exists(path)) job_summary(job) # says why
  info_of(jsonlite::fromJSON(path, simplifyVector = FALSE)$data)
}

job_predict.ulisse_local <- function(job, rows, probs, latent, draws) {
  new <- tempfile("ulisse-rows")
  out <- tempfile("ulisse-", fileext = ".csv")
  on.exit(unlink(c(new, out)))
  write_table(rows, new)
  local_restore(job)
  piped <- file.path(job$folder, "state", "data")
  local_tell(job, "predict", "--data", new, "--out", out, "--quiet",
    if (length(probs)) c("--quantiles", paste(sprintf("%.17g", probs), collapse = ",")),
    if (latent) "--latent",
    if (!is.null(draws)) c("--draws", as.character(draws)),
    if (!is.null(job$threads)) c("--threads", as.character(job$threads)),
    if (file.exists(piped)) c("--train", piped)) # where the specification says it is, unless the folder has moved
  p <- read_numbers(out)
  at <- match("sd", names(p)) # classes without an order have none
  list(mean = p[["mean"]], sd = p[["sd"]], quantiles = if (!is.na(at)) as.matrix(p[at + seq_along(probs)]), log_density = p$log_density,
    probabilities = p[startsWith(names(p), "p[")], functions = p[grepl("^(mean|sd)\\[", names(p))])
}

ulisse_logs.ulisse_local <- function(job) {
  path <- file.path(job$folder, "log.jsonl")
  if (!file.exists(path)) return(list())
  lapply(readLines(path, warn = FALSE), jsonlite::fromJSON)
}

# Saving: a run that is over keeps its results in memory, too, so that saveRDS() takes them along.

kept <- c("spec.yaml", "summary.json", "result.json", "state/data")

local_keep <- function(job) {
  job_frame(job)
  paths <- file.path(job$folder, kept)
  there <- file.exists(paths)
  job$files <- stats::setNames(lapply(paths[there], function(p) readBin(p, "raw", file.size(p))), kept[there])
  invisible(job)
}

# Write the results where they are looked for, if this is another session than the one that made them.
local_restore <- function(job) {
  if (is.null(job$files) || file.exists(file.path(job$folder, "result.json"))) return(invisible(job))
  job$process <- NULL
  local_place(job, NULL)
  for (name in names(job$files)) {
    path <- file.path(job$folder, name)
    dir.create(dirname(path), recursive = TRUE, showWarnings = FALSE)
    writeBin(job$files[[name]], path)
  }
  invisible(job)
}

# What the log of a run told so far. It is read on where it was left.
new_log <- function() {
  log <- new.env(parent = emptyenv())
  log$offset <- 0
  log$begun <- FALSE
  log$name <- ""
  log$phase <- "preparing"
  log$iterations <- integer()
  log$warm <- 0L
  log$ended <- NA_integer_
  log$rhat <- log$ess <- NA_real_
  log$seconds <- 0
  log$clock <- NA_real_
  log
}

log_draws <- function(log) {
  if (!is.na(log$ended)) return(log$ended)
  if (log$phase %in% c("preparing", "warmup") || !length(log$iterations) || anyNA(log$iterations)) return(0L)
  max(0L, min(log$iterations) - log$warm)
}

read_log <- function(job) {
  path <- file.path(job$folder, "log.jsonl")
  size <- if (file.exists(path)) file.size(path) else 0
  if (size <= job$log$offset) return()
  con <- file(path, "rb")
  on.exit(close(con))
  seek(con, job$log$offset)
  text <- readBin(con, "raw", size - job$log$offset)
  ends <- which(text == as.raw(10L))
  if (!length(ends)) return()
  whole <- ends[[length(ends)]]
  job$log$offset <- job$log$offset + whole
  for (line in strsplit(rawToChar(text[seq_len(whole)]), "\n", fixed = TRUE)[[1]]) {
    # Most lines are of gradients, and long: of those only two numbers are of interest.
    if (grepl("\"msg\":\"gradient\"", line, fixed = TRUE)) {
      if (grepl("\"certificate\":true", line, fixed = TRUE)) next
      chain <- as.integer(sub(".*\"chain\":([0-9]+).*", "\\1", line))
      if (chain > 0) job$log$iterations[chain] <- as.integer(sub(".*\"iter\":([0-9]+).*", "\\1", line))
    } else {
      take_event(job$log, jsonlite::fromJSON(line))
    }
  }
}

take_event <- function(log, line) {
  if (identical(line$msg, "started")) {
    log$begun <- TRUE
    log$name <- line$name
    log$phase <- "preparing"
    log$clock <- NA_real_
    log$ended <- NA_integer_
    log$iterations <- c(log$iterations, rep(NA_integer_, max(0, line$chains - length(log$iterations))))
  } else if (line$msg %in% c("warmup", "sampling", "certifying", "done")) {
    if (!is.null(line$windows)) log$warm <- sum(line$windows)
    if (line$msg == "done") log$ended <- as.integer(line$draws) else log$phase <- line$msg
    if (!is.null(line$rhat) && line$rhat > 0) {
      log$rhat <- line$rhat
      log$ess <- line$ess
    }
  }
}
