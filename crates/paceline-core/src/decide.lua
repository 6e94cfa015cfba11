-- Twin of decide.rs: the same decision, made inside Redis, where one command runs at a time.
-- Same names, same order; vectors/ holds both to the same answers. State version 1.
--
-- KEYS[1]  the bucket, a hash:
--   policy    its text                      plan      the same compiled (see below), with how
--   made      when it or its policy began             long it is kept idle at least
--   'seen paused ahead levels since until'  the clock, how far `at` is ahead of it, for each quota
--             a token bucket's credit in units ('-' for a window), and while suspended since when
--             and until when
--   'window N'  used, newest entry, then the others from the oldest: pairs of moment and tokens
--   reason, by  while suspended
-- ARGV[1]  operation; when replaying, followed by '@' and the time to take in microseconds
--   take       2 cost        3 wait_max_us  4.. policy
--   set        2 pinned      3 -            4.. policy
--   suspend    2 for_us      3 reason       4 by
--   check      2 granted_at  3 due
--   give_back  2 granted_at  3 due          4 cost   5 before
--   resume, look
--   policy:    4 plan, 5 text, 6 keep_us, 7 'w' where it has windows, 8.. three numbers a quota:
--              rate unit capacity of a token bucket, limit span_us -chunk of a window
-- plan     '1 keep_us', then for each quota 'b rate unit burst interval_us'
--                                        or 'w limit span_us chunk interval_us'
-- reply    take       {1, wait_us, now, due, before} granted; {2, retry_after_us, quota or 0 where
--                     suspended} denied; {3, cost_max, quota} never; then the policy's text
--                     where the bucket's is not the caller's
--          set        {changed}       suspend  {left_us}     resume  {was}
--          check      {1, wait_us} stands, {0} void          give_back  {given}
--          look       {now, the hash}
--
-- All numbers are whole and below 2^53, so exact; '%d' prints them whole (tostring would not).
-- The usual call makes no function, parses nothing it does not need and asks the server four times:
-- TIME, HMGET, HSET, PEXPIRE. Every look-up and every table counts here, hence few locals, `if` in
-- place of min and max, and `+ 0`, which makes a number of a text.

local call, match, format, ARGV, key = redis.call, string.match, string.format, ARGV, KEYS[1]
local CLOCK = 'seen paused ahead levels since until'
local op, now = ARGV[1], nil
if op ~= 'take' and string.find(op, '@', 1, true) then
  op, now = match(op, '^(.-)@(.*)$')
  now = now + 0
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if op == 'look' then
  return {now, call('HGETALL', key)}
end

-- Reading. `numbers` holds the numbers of quota i from numbers[base + 3 * i] on: the caller's
-- arguments where its policy is the bucket's.
local own, keep_us, windows, plan, clock
if op == 'take' or op == 'set' then
  own, keep_us = ARGV[4], ARGV[6] + 0
end
if own and ARGV[7] == 'w' then
  local fields = {'plan', CLOCK}
  for i = 1, (#ARGV - 7) / 3 do
    fields[2 + i] = 'window ' .. i
  end
  windows = call('HMGET', key, unpack(fields))
  plan, clock = table.remove(windows, 1), table.remove(windows, 1)
else
  local read = call('HMGET', key, 'plan', CLOCK)
  plan, clock = read[1], read[2]
end
local numbers, base, quotas = ARGV, 5, 0
if plan == own or op == 'take' and not plan then
  quotas = (#ARGV - 7) / 3
elseif plan then
  local version, kept, gates = match(plan, '^(%S+) (%S+)(.*)$')
  if version ~= '1' then
    return redis.error_reply('PACELINE state version ' .. version .. ' is not this script\'s (1): '
      .. 'upgrade this process, or delete the bucket')
  end
  keep_us, numbers, base, windows = kept + 0, {}, -2, {}
  for kind, a, b, c in string.gmatch(gates, '(%S) (%S+) (%S+) (%S+) %S+') do
    local n = 3 * quotas
    quotas = quotas + 1
    numbers[n + 1], numbers[n + 2], numbers[n + 3] = a, b, kind == 'w' and -c or c * b
    windows[quotas] = kind == 'w' and call('HGET', key, 'window ' .. quotas)
  end
end

local seen, paused, ahead, since, ends, levels = now, 0, 0, 0, 0, nil
if clock then
  local rest
  seen, paused, ahead, rest = match(clock, '^(%S+) (%S+) (%S+) ?(.*)$')
  seen, paused, ahead = seen + 0, paused + 0, ahead + 0
  levels = {tonumber(rest)}
  if quotas ~= 1 or not levels[1] then
    local i = 0
    for word in string.gmatch(rest, '%S+') do
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
if op ~= 'take' or windows then
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
  local cost = ARGV[2] + 0
  if not plan then
    -- New, or suspended before it had a policy: it starts with the caller's, as of now.
    at, levels = bucket_time, {}
    for i = 1, quotas do
      levels[i] = numbers[base + 3 * i + 2] + 0
    end
  end
  local t0 = bucket_time
  if at > t0 then
    t0 = at
  end
  local due, quota, cost_max, cost_max_quota = t0, 1, nil, nil
  for i = 1, quotas do
    -- The earliest moment from t0 on at which this quota has room; levels are as of `at`.
    local n, earliest, most = base + 3 * i, t0, nil
    local rate, unit, capacity = numbers[n] + 0, numbers[n + 1] + 0, numbers[n + 2] + 0
    numbers[n], numbers[n + 1], numbers[n + 2] = rate, unit, capacity
    if capacity >= 0 then
      most = capacity / unit
      local credit = levels[i] + (t0 - at) * rate
      if credit > capacity then
        credit = capacity
      end
      local short = cost * unit - credit
      if short > 0 and rate > 0 then
        earliest = t0 + math.ceil(short / rate)
      end
    else
      local limit, span_us = rate, unit
      most = limit
      if windows[i] then
        -- Leave out the oldest until the call fits; those that have left by t0 go for free.
        local used, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
        used = used + 0
        local fits = false
        for time, tokens in string.gmatch(others, '(%S+) (%S+)') do
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
  elseif wait_us > ARGV[3] + 0 then
    reply, exists = {2, wait_us, left > 0 and 0 or quota}, plan
  else
    if not plan then
      if format('%d', 9007199254740991) ~= '9007199254740991' then
        return redis.error_reply('PACELINE this server cannot print whole numbers above 2^31')
      end
      call('HSET', key, 'policy', ARGV[5], 'plan', own)
      if not clock then
        call('HSET', key, 'made', format('%d', now - 1))
      end
    end
    for i = 1, quotas do
      local n = base + 3 * i
      local capacity = numbers[n + 2]
      if capacity >= 0 then
        local credit = levels[i] + (due - at) * numbers[n]
        if credit > capacity then
          credit = capacity
        end
        levels[i] = credit - cost * numbers[n + 1]
      else
        local window, span_us = windows[i], numbers[n + 1]
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
        windows[i] = push(window, due, cost, -capacity)
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
  local granted_at, due = ARGV[2] + 0, ARGV[3] + 0
  local stands = plan and granted_at > call('HGET', key, 'made') + 0
  if op == 'check' then
    if stands then
      return {1, math.max(due - bucket_time + left, 0)}
    end
    return {0}
  end
  if not stands or due > at then
    return {0}
  end
  local cost, before = ARGV[4] + 0, ARGV[5] + 0
  -- A booking at the bucket's moment takes that back with it, though never before the one that
  -- came before it, nor before now. Not where there is a window: it has forgotten what had left
  -- by then.
  local last, back_to = due == at, at
  for i = 1, quotas do
    last = last and numbers[base + 3 * i + 2] + 0 >= 0
  end
  if last then
    back_to = math.min(at, math.max(bucket_time, before))
  end
  for i = 1, quotas do
    local n = base + 3 * i
    local rate, unit, capacity = numbers[n] + 0, numbers[n + 1] + 0, numbers[n + 2] + 0
    if capacity >= 0 then
      local refilled = (at - due) * rate
      local back = math.max(cost * unit - refilled, 0)
      -- As of an earlier moment the credit may be negative, where another booking of the same
      -- moment stands.
      local earned = (at - back_to) * rate
      levels[i] = math.min(levels[i] + back, capacity) - earned
    elseif windows[i] and due + unit > at then
      -- Once its span is over, its tokens have left the window by themselves. Else they come out
      -- of the first entries that can hold them.
      local _, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
      local window, back = nil, cost
      for time, tokens in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
        time, tokens = time + 0, tokens + 0
        if time >= due then
          local out = math.min(back, tokens)
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
  local until_ = now + ARGV[2]
  if not clock then
    call('HSET', key, 'made', format('%d', now - 1))
  end
  if ends == 0 then
    -- The bucket's clock stops here.
    since, ends = now, until_
    call('HSET', key, 'reason', ARGV[3], 'by', ARGV[4])
  elseif until_ > ends then
    ends = until_
    call('HSET', key, 'reason', ARGV[3], 'by', ARGV[4])
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
  local pinned_us, idle_us = 315360000000000, ARGV[6]
  local new_keep_us = ARGV[2] == '1' and pinned_us or idle_us + 0
  local new_gates = match(own, '^%S+ %S+(.*)$')
  local equal = plan and match(plan, '^%S+ %S+(.*)$') == new_gates
  if equal and keep_us >= pinned_us then
    -- Workers that set at start-up what an operator pinned do not unpin it.
    new_keep_us = pinned_us
  end
  local new_plan = format('1 %d%s', new_keep_us, new_gates)
  if equal then
    local changed = plan ~= new_plan or call('HGET', key, 'policy') ~= ARGV[5]
    keep_us = new_keep_us
    if changed then
      call('HSET', key, 'policy', ARGV[5], 'plan', new_plan)
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
        local times = math.floor(rest / c)
        quotient, rest, bit = quotient + times, rest - times * c, bit / 2
      end
      return quotient
    end

    -- For each new quota the old one it goes on from: first one of the same shape and interval,
    -- in order, then one of the same shape.
    local function shapes(of)
      local list = {}
      for kind, interval in string.gmatch(of, '(%S) %S+ %S+ %S+ (%S+)') do
        list[#list + 1] = {kind, interval}
      end
      return list
    end
    local new_shapes, old_shapes = shapes(new_gates), shapes(plan and match(plan, '^%S+ %S+(.*)$') or '')
    local new_quotas, from, taken = #new_shapes, {}, {}
    for same_interval = 1, 0, -1 do
      for i = 1, new_quotas do
        for j = 1, from[i] and 0 or quotas do
          local new, old = new_shapes[i], old_shapes[j]
          if not taken[j] and new[1] == old[1] and (same_interval == 0 or new[2] == old[2]) then
            from[i], taken[j] = j, true
            break
          end
        end
      end
    end

    -- What is left of one quota under the one that follows it.
    local new_levels, new_windows = {}, {}
    for i = 1, new_quotas do
      local m, j = 5 + 3 * i, from[i]
      local n = j and base + 3 * j
      local unit, capacity = ARGV[m + 1] + 0, ARGV[m + 2] + 0
      if capacity >= 0 then
        if not j then
          new_levels[i] = capacity
        elseif at > bucket_time then
          new_levels[i] = 0
        else
          local old = numbers[n + 1] + 0
          local credit = math.min(levels[j] + (bucket_time - at) * numbers[n], numbers[n + 2] + 0)
          -- Negative where a booking ahead stands, which is void.
          credit = math.max(credit, 0)
          local tokens = math.floor(credit / old)
          local scaled = tokens * unit + scale(credit - tokens * old, unit, old)
          new_levels[i] = math.min(scaled, capacity)
        end
      elseif j and windows[j] then
        local chunk, chunk_old = -capacity, -numbers[n + 2]
        local before, kept = -math.huge, nil
        local _, newest, held, others = match(windows[j], '^(%S+) (%S+) (%S+)(.*)$')
        for time, tokens in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
          time, tokens = time + 0, tokens + 0
          if time <= bucket_time then
            kept = push(kept, time, tokens, chunk)
          elseif before <= bucket_time and math.min(tokens, chunk_old) > 1 then
            -- Fewer than a chunk of its tokens may be of calls made until now.
            kept = push(kept, bucket_time, math.min(tokens, chunk_old) - 1, chunk)
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
    call('HSET', key, 'policy', ARGV[5], 'plan', new_plan, 'made',
      format('%d', math.max(now, was_seen)))
    at, keep_us = bucket_time, new_keep_us
    numbers, base, quotas, levels, windows = ARGV, 5, new_quotas, new_levels, new_windows
    reply, writes, exists = {1}, true, true
  end

else
  return redis.error_reply('PACELINE unknown operation ' .. op)
end

if writes then
  local text
  if quotas == 1 and ends == 0 and numbers[base + 5] + 0 >= 0 then
    text = format('%d %d %d %d', now, paused, at - now + paused, levels[1])
  else
    text = format('%d %d %d', now, paused, at - now + paused)
    for i = 1, quotas do
      if numbers[base + 3 * i + 2] + 0 >= 0 then
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
    local n = base + 3 * i
    local rate, capacity, back = numbers[n] + 0, numbers[n + 2] + 0, at
    if capacity < 0 then
      if windows[i] then
        back = match(windows[i], '^%S+ (%S+)') + numbers[n + 1]
      end
    elseif rate > 0 then
      back = at + math.ceil((capacity - levels[i]) / rate)
    end
    if back > full then
      full = back
    end
  end
  local us = full - bucket_time + left
  if us < left then
    us = left
  end
  -- Without a policy it is kept as any idle bucket.
  keep_us = keep_us or 3000000
  if us < keep_us then
    us = keep_us
  end
  call('PEXPIRE', key, format('%d', us / 1000 + 2))
end
return reply
