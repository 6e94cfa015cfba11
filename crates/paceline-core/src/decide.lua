-- Twin of decide.rs: the same decision, made inside Redis, where one command runs at a time.
-- Same names, same order; vectors/ holds both to the same answers. State version 1.
--
-- KEYS[1]  the bucket, a hash:
--   policy    its text                      plan      the same compiled (see below)
--   keep_us   kept idle at least this long  made      when it or its policy began
--   'seen paused ahead levels since until'  the clock, how far `at` is ahead of it, for each quota
--             a token bucket's credit in units ('-' for a window), and while suspended since when
--             and until when
--   'window N'  used, newest entry, then the others from the oldest: pairs of moment and tokens
--   reason, by  while suspended
-- ARGV[1]  operation; ARGV[2] the time in microseconds when replaying, '' to use the server's
--   take       3 cost        4 wait_max_us  5.. policy
--   set        3 pinned      4 -            5.. policy
--   suspend    3 for_us      4 reason       5 by
--   check      3 granted_at  4 due
--   give_back  3 granted_at  4 due          5 cost   6 before
--   resume, look
--   policy:    5 text, 6 plan, 7 idle_us, 8 'w' where it has windows, 9.. the plan's numbers
-- plan     '1', then for each quota five words: 'b' rate unit capacity interval_us
--                                            or 'w' limit span_us chunk interval_us
-- reply    take       {1, wait_us, now, due, before} granted; {2, retry_after_us, quota or 0 where
--                     suspended} denied; {3, cost_max, quota} never; then the policy's text
--                     where the bucket's is not the caller's
--          set        {changed}       suspend  {left_us}     resume  {was}
--          check      {1, wait_us} stands, {0} void          give_back  {given}
--          look       {now, the hash}
--
-- All numbers are whole and below 2^53, so exact; '%d' prints them whole (tostring would not).
-- The usual call makes no function, parses nothing it does not need and asks the server four times:
-- TIME, HMGET, HSET, PEXPIRE. Text in arithmetic becomes a number, hence the `+ 0`.

local call, ARGV, key = redis.call, ARGV, KEYS[1]
local format, match, gmatch = string.format, string.match, string.gmatch
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local CLOCK = 'seen paused ahead levels since until'
local op = ARGV[1]

local now
if ARGV[2] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[2])
end
if op == 'look' then
  return {now, call('HGETALL', key)}
end

-- Reading. `numbers` is the plan: the caller's arguments where its policy is the bucket's. The
-- words of quota i are numbers[n] to numbers[n + 4], with n = base + 5 * i.
local own, windows, read = nil, {}, nil
if op == 'take' or op == 'set' then
  own = ARGV[6]
end
if own and ARGV[8] == 'w' then
  local fields = {'plan', 'keep_us', CLOCK}
  for i = 1, (#ARGV - 8) / 5 do
    fields[3 + i] = 'window ' .. i
  end
  read = call('HMGET', key, unpack(fields))
  for i = 1, #fields - 3 do
    windows[i] = read[3 + i]
  end
else
  read = call('HMGET', key, 'plan', 'keep_us', CLOCK)
end
local plan, keep_us, clock = read[1], read[2], read[3]
local numbers, base, quotas = ARGV, 4, 0
if plan and plan ~= own then
  numbers, base = {}, -3
  for word in gmatch(plan, '%S+') do
    numbers[#numbers + 1] = word
  end
  if numbers[1] ~= '1' then
    return redis.error_reply('PACELINE state version ' .. numbers[1] .. ' is not this script\'s '
      .. '(1): upgrade this process, or delete the bucket')
  end
  for i = 1, (#numbers - 1) / 5 do
    windows[i] = numbers[base + 5 * i] == 'w' and call('HGET', key, 'window ' .. i)
  end
end
if plan or op == 'take' then
  quotas = (#numbers - base - 4) / 5
end

local seen, paused, ahead, since, ends, levels = now, 0, 0, 0, 0, {}
if clock then
  local rest
  seen, paused, ahead, rest = match(clock, '^(%S+) (%S+) (%S+) ?(.*)$')
  seen, paused, ahead = seen + 0, paused + 0, ahead + 0
  levels[1] = tonumber(rest)
  if quotas ~= 1 or not levels[1] then
    local i = 0
    for word in gmatch(rest, '%S+') do
      i = i + 1
      levels[i] = tonumber(word)
    end
    -- Without a policy there are no levels; behind them stands the suspension.
    if i > (plan and quotas or 0) then
      since, ends = match(rest, '(%S+) (%S+)$')
      since, ends = since + 0, ends + 0
    end
  end
end
local at, was_seen, was_suspended = seen - paused + ahead, seen, ends ~= 0

-- The clock as an operation at `now` finds it: a step back absorbed, a suspension that is over
-- added to the time paused.
if now < seen then
  local step = seen - now
  paused = paused - step
  if ends ~= 0 then
    since, ends = since - step, ends - step
  end
end
if ends ~= 0 and now >= ends then
  paused, since, ends = paused + ends - since, 0, 0
end
local bucket_time, left = now - paused, 0
if ends ~= 0 then
  bucket_time, left = since - paused, ends - now
end

local push
if own == nil or ARGV[8] == 'w' or plan ~= own then
  -- Adds tokens taken at `time` to a window's text: an entry of fewer than `chunk` tokens is
  -- joined with them and then counts as of `time`.
  push = function(window, time, tokens, chunk)
    if not window then
      return format('%d %d %d', tokens, time, tokens)
    end
    local used, newest, held, others = match(window, '^(%S+) (%S+) (%S+)(.*)$')
    if newest + 0 == time or held + 0 < chunk then
      return format('%d %d %d%s', used + tokens, time, held + tokens, others)
    end
    return format('%d %d %d%s %s %s', used + tokens, time, tokens, others, newest, held)
  end
end

-- What the operation leaves: its reply, whether the bucket is written, whether it exists.
local reply, writes, exists = nil, false, clock

if op == 'take' then
  local cost = ARGV[3] + 0
  if not plan then
    -- New, or suspended before it had a policy: it starts with the caller's, as of now.
    at, keep_us = bucket_time, ARGV[7]
    for i = 1, quotas do
      local n = base + 5 * i
      levels[i] = numbers[n] == 'b' and numbers[n + 3] + 0 or nil
    end
  end
  local t0 = max(bucket_time, at)
  local due, quota, cost_max, cost_max_quota = t0, 1, nil, nil
  for i = 1, quotas do
    -- The earliest moment from t0 on at which this quota has room; levels are as of `at`.
    local n, earliest, most = base + 5 * i, t0, nil
    if numbers[n] == 'b' then
      local rate, unit, capacity = numbers[n + 1] + 0, numbers[n + 2] + 0, numbers[n + 3] + 0
      numbers[n + 1], numbers[n + 2], numbers[n + 3] = rate, unit, capacity
      most = capacity / unit
      local short = cost * unit - min(levels[i] + (t0 - at) * rate, capacity)
      if short > 0 and rate > 0 then
        earliest = t0 + ceil(short / rate)
      end
    else
      local limit, span_us = numbers[n + 1] + 0, numbers[n + 2] + 0
      most = limit
      if windows[i] then
        -- Leave out the oldest until the call fits; those that have left by t0 go for free.
        local used, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
        used = used + 0
        local fits = false
        for time, tokens in gmatch(others, '(%S+) (%S+)') do
          local leaves = time + span_us
          if leaves > t0 then
            if used + cost <= limit then
              fits = true
              break
            end
            earliest = leaves
          end
          used = used - tokens
        end
        if not fits and newest + span_us > t0 and used + cost > limit then
          earliest = newest + span_us
        end
      end
    end
    if not cost_max or most < cost_max then
      cost_max, cost_max_quota = most, i
    end
    if earliest > due then
      due, quota = earliest, i
    end
  end

  local wait_us = due - bucket_time + left
  if cost > cost_max then
    reply, exists = {3, cost_max, cost_max_quota}, plan
  elseif wait_us > ARGV[4] + 0 then
    reply, exists = {2, wait_us, left > 0 and 0 or quota}, plan
  else
    if not plan then
      if format('%d', 9007199254740991) ~= '9007199254740991' then
        return redis.error_reply('PACELINE this server cannot print whole numbers above 2^31')
      end
      call('HSET', key, 'policy', ARGV[5], 'plan', own, 'keep_us', keep_us)
      if not clock then
        call('HSET', key, 'made', format('%d', now - 1))
      end
    end
    for i = 1, quotas do
      local n = base + 5 * i
      if numbers[n] == 'b' then
        levels[i] = min(levels[i] + (due - at) * numbers[n + 1], numbers[n + 3])
          - cost * numbers[n + 2]
      else
        local window, span_us = windows[i], numbers[n + 2] + 0
        if window then
          -- What has left by `due` is dropped, oldest first.
          local used, newest, held, others = match(window, '^(%S+) (%S+) (%S+)(.*)$')
          local from = 1
          while true do
            local time, tokens, behind = match(others, '^ (%S+) (%S+)()', from)
            if not time or time + span_us > due then
              break
            end
            used, from = used - tokens, behind
          end
          if from > #others and newest + span_us <= due then
            window = nil
          elseif from > 1 then
            window = format('%d %s %s%s', used, newest, held, string.sub(others, from))
          end
        end
        windows[i] = push(window, due, cost, numbers[n + 3] + 0)
        call('HSET', key, 'window ' .. i, windows[i])
      end
    end
    reply, writes, exists = {1, wait_us, now, due, at}, true, true
    at = due
  end
  if plan and plan ~= own then
    reply[#reply + 1] = call('HGET', key, 'policy')
  end

elseif op == 'check' or op == 'give_back' then
  local granted_at, due = ARGV[3] + 0, ARGV[4] + 0
  local stands = plan and granted_at > call('HGET', key, 'made') + 0
  if op == 'check' then
    if stands then
      return {1, max(due - bucket_time + left, 0)}
    end
    return {0}
  end
  if not stands or due > at then
    return {0}
  end
  local cost, before = ARGV[5] + 0, ARGV[6] + 0
  -- A booking at the bucket's moment takes that back with it, though never before the one that
  -- came before it, nor before now. Not where there is a window: it has forgotten what had left
  -- by then.
  local last, back_to = due == at, at
  for i = 1, quotas do
    last = last and numbers[base + 5 * i] ~= 'w'
  end
  if last then
    back_to = min(at, max(bucket_time, before))
  end
  for i = 1, quotas do
    local n = base + 5 * i
    if numbers[n] == 'b' then
      local rate, unit, capacity = numbers[n + 1] + 0, numbers[n + 2] + 0, numbers[n + 3] + 0
      local refilled = (at - due) * rate
      local back = max(cost * unit - refilled, 0)
      -- As of an earlier moment the credit may be negative, where another booking of the same
      -- moment stands.
      local earned = (at - back_to) * rate
      levels[i] = min(levels[i] + back, capacity) - earned
    elseif windows[i] and due + numbers[n + 2] > at then
      -- Once its span is over, its tokens have left the window by themselves. Else they come out
      -- of the first entries that can hold them.
      local _, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
      local window, back = nil, cost
      for time, tokens in gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
        time, tokens = time + 0, tokens + 0
        if time >= due then
          local out = min(back, tokens)
          tokens, back = tokens - out, back - out
        end
        if tokens > 0 then
          -- A chunk of 0 joins nothing: the other entries stay as they are.
          window = push(window, time, tokens, 0)
        end
      end
      windows[i] = window
      if window then
        call('HSET', key, 'window ' .. i, window)
      else
        call('HDEL', key, 'window ' .. i)
      end
    end
  end
  at = back_to
  reply, writes = {1}, true

elseif op == 'suspend' then
  local until_ = now + ARGV[3]
  if not clock then
    keep_us = 3000000
    call('HSET', key, 'made', format('%d', now - 1), 'keep_us', keep_us)
  end
  if ends == 0 then
    -- The bucket's clock stops here.
    since, ends = now, until_
    call('HSET', key, 'reason', ARGV[4], 'by', ARGV[5])
  elseif until_ > ends then
    ends = until_
    call('HSET', key, 'reason', ARGV[4], 'by', ARGV[5])
  end
  left = ends - now
  reply, writes, exists = {left}, true, true

elseif op == 'resume' then
  local was = ends ~= 0
  if was then
    paused, since, ends, left = paused + now - since, 0, 0, 0
  end
  reply, writes = {was and 1 or 0}, clock

elseif op == 'set' then
  local pinned_us = 315360000000000
  local new_keep_us = ARGV[3] == '1' and pinned_us or ARGV[7] + 0
  if plan == own then
    -- Equal quotas change nothing of the state, and do not unpin what an operator pinned.
    if keep_us + 0 >= pinned_us then
      new_keep_us = pinned_us
    end
    local changed = keep_us + 0 ~= new_keep_us or call('HGET', key, 'policy') ~= ARGV[5]
    keep_us = new_keep_us
    if changed then
      call('HSET', key, 'policy', ARGV[5], 'keep_us', format('%d', keep_us))
    end
    reply = {changed and 1 or 0}
  else
    -- floor(a * b / c) for a < c < 2^51, by long division over b's binary digits.
    local function scale(a, b, c)
      local bit = 1
      while bit * 2 <= b do
        bit = bit * 2
      end
      local quotient, rest = 0, 0
      while bit >= 1 do
        quotient, rest = quotient * 2, rest * 2
        if b >= bit then
          b, rest = b - bit, rest + a
        end
        local times = floor(rest / c)
        quotient, rest, bit = quotient + times, rest - times * c, bit / 2
      end
      return quotient
    end

    -- For each new quota the old one it goes on from: first one of the same shape and interval,
    -- in order, then one of the same shape.
    local new_quotas, from, taken = (#ARGV - 8) / 5, {}, {}
    for same_interval = 1, 0, -1 do
      for i = 1, new_quotas do
        local m = 4 + 5 * i
        for j = 1, from[i] and 0 or quotas do
          local n = base + 5 * j
          if not taken[j] and numbers[n] == ARGV[m]
            and (same_interval == 0 or numbers[n + 4] == ARGV[m + 4]) then
            from[i], taken[j] = j, true
            break
          end
        end
      end
    end

    -- What is left of one quota under the one that follows it.
    local new_levels, new_windows = {}, {}
    for i = 1, new_quotas do
      local m, j = 4 + 5 * i, from[i]
      local n = j and base + 5 * j
      if ARGV[m] == 'b' then
        local unit, capacity = ARGV[m + 2] + 0, ARGV[m + 3] + 0
        if not j then
          new_levels[i] = capacity
        elseif at > bucket_time then
          new_levels[i] = 0
        else
          local old = numbers[n + 2] + 0
          local credit = min(levels[j] + (bucket_time - at) * numbers[n + 1], numbers[n + 3] + 0)
          local tokens = floor(credit / old)
          new_levels[i] = min(tokens * unit + scale(credit - tokens * old, unit, old), capacity)
        end
      elseif j and windows[j] then
        local chunk, chunk_old = ARGV[m + 3] + 0, numbers[n + 3] + 0
        local before, kept = -math.huge, nil
        local _, newest, held, others = match(windows[j], '^(%S+) (%S+) (%S+)(.*)$')
        for time, tokens in gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
          time, tokens = time + 0, tokens + 0
          if time <= bucket_time then
            kept = push(kept, time, tokens, chunk)
          elseif before <= bucket_time and min(tokens, chunk_old) > 1 then
            -- Fewer than a chunk of its tokens may be of calls made until now.
            kept = push(kept, bucket_time, min(tokens, chunk_old) - 1, chunk)
          end
          before = time
        end
        new_windows[i] = kept
      end
    end
    for i = 1, quotas do
      if windows[i] then
        call('HDEL', key, 'window ' .. i)
      end
    end
    for i, window in pairs(new_windows) do
      call('HSET', key, 'window ' .. i, window)
    end
    call('HSET', key, 'policy', ARGV[5], 'plan', own, 'keep_us', format('%d', new_keep_us),
      'made', format('%d', max(now, was_seen)))
    at, keep_us = bucket_time, new_keep_us
    numbers, base, quotas, levels, windows = ARGV, 4, new_quotas, new_levels, new_windows
    reply, writes, exists = {1}, true, true
  end

else
  return redis.error_reply('PACELINE unknown operation ' .. op)
end

if writes then
  local text
  if quotas == 1 and levels[1] and ends == 0 then
    text = format('%d %d %d %d', now, paused, at - (now - paused), levels[1])
  else
    text = format('%d %d %d', now, paused, at - (now - paused))
    for i = 1, quotas do
      if numbers[base + 5 * i] == 'b' then
        text = format('%s %d', text, levels[i])
      else
        text = text .. ' -'
      end
    end
    if ends ~= 0 then
      text = format('%s %d %d', text, since, ends)
    end
  end
  call('HSET', key, CLOCK, text)
  if was_suspended and ends == 0 then
    call('HDEL', key, 'reason', 'by')
  end
end

-- Kept until it is full again, with all bookings and any suspension over, and at least keep_us.
-- A millisecond more, since Redis expires by a coarser clock.
if exists then
  local full = at
  for i = 1, quotas do
    local n = base + 5 * i
    if numbers[n] == 'b' then
      if numbers[n + 1] + 0 > 0 then
        full = max(full, at + ceil((numbers[n + 3] - levels[i]) / numbers[n + 1]))
      end
    elseif windows[i] then
      full = max(full, match(windows[i], '^%S+ (%S+)') + numbers[n + 2])
    end
  end
  local us = max(full - bucket_time + left, left, keep_us + 0)
  call('PEXPIRE', key, format('%d', ceil(us / 1000) + 1))
end
return reply
