// What an app asks entitlement-sync: what the user has, Restore, the proof of a new purchase, cases with support.
// For Flutter on iOS and Android, with package:http.

import 'dart:convert';
import 'dart:io';
import 'dart:math';

import 'package:http/http.dart' as http;

typedef Json = Map<String, dynamic>;

DateTime? _time(dynamic text) => text == null ? null : DateTime.parse(text as String);
List<T> _list<T>(dynamic list, T Function(Json) make) => [for (final one in (list as List? ?? [])) make(one as Json)];

class Proof {
  /// `app_store` with `storekit_jws`, `app_receipt` or `app_transaction`; `google_play` with `purchase_token`.
  const Proof(this.store, this.kind, this.value);
  final String store, kind, value;
  Json toJson() => {'store': store, 'kind': kind, 'value': value};
}

/// Something that gives access now.
class Entitlement {
  Entitlement(Json json)
      : id = json['id'] as String?,
        store = json['store'] as String?,
        source = json['source'] as String?,
        productId = json['product_id'] as String?,
        endsAt = _time(json['ends_at']),
        willRenew = json['will_renew'] as bool?;
  final String? id, store, source, productId;
  final DateTime? endsAt;
  final bool? willRenew;
}

class StoreState {
  StoreState(Json json)
      : store = json['store'] as String,
        state = json['state'] as String,
        message = json['message'] as String?;
  final String store, state;
  final String? message;
}

/// What the user has; `type` is `free` or `subscriber`. `isFromDisk`: there was no answer, and this is the last one.
class Access {
  Access(Json json, {this.isFromDisk = false, DateTime? now})
      : type = json['type'] as String,
        until = _time(json['until']),
        restoreSuggested = json['restore_suggested'] as bool,
        entitlements = _list(json['entitlements'], Entitlement.new)
            .where((one) => now == null || (one.endsAt?.isAfter(now) ?? true))
            .toList(),
        stores = _list(json['stores'], StoreState.new);
  final String type;
  final DateTime? until;
  final bool restoreSuggested, isFromDisk;
  final List<Entitlement> entitlements;
  final List<StoreState> stores;
}

class Product {
  Product(Json json)
      : store = json['store'] as String,
        productId = json['product_id'] as String?,
        entitlements = (json['entitlements'] as List).cast<String>(),
        endsAt = _time(json['ends_at']);
  final String store;
  final String? productId;
  final List<String> entitlements;
  final DateTime? endsAt;
}

class Restore {
  Restore(Json json)
      : id = json['id'] as String,
        reference = json['reference'] as String,
        state = json['state'] as String,
        outcome = json['outcome'] as String?,
        messageKey = json['message_key'] as String?,
        message = json['message'] as String?,
        products = _list(json['products'], Product.new),
        estimatedWaitSeconds = json['estimated_wait_s'] as int?;
  final String id, reference, state;
  final String? outcome, messageKey, message;
  final List<Product> products;
  final int? estimatedWaitSeconds;
  bool get hasEnded => const {'done', 'dead', 'canceled'}.contains(state);
  Ending? get ending => hasEnded ? _endings[outcome] ?? Ending.tryAgain : null;
}

/// `role`: `claimant` or `owner`; `state`: `open`, `question` or `decided`.
class Ticket {
  Ticket(Json json)
      : id = json['id'] as String,
        role = json['role'] as String,
        reference = json['reference'] as String?,
        state = json['state'] as String,
        createdAt = _time(json['created_at']),
        question = json['question'] as String?,
        questionId = json['question_id'] as String?,
        askedAt = _time(json['asked_at']),
        answerBy = _time(json['answer_by']),
        store = json['store'] as String?,
        productId = json['product_id'] as String?,
        message = json['message'] as String;
  final String id, role, state, message;
  final String? reference, question, questionId, store, productId;
  final DateTime? createdAt, askedAt, answerBy;
}

/// How a restore ends for a person.
enum Ending { unlocked, nothing, tryAgain, support }

const _endings = {
  'restored': Ending.unlocked, 'already_subscriber': Ending.unlocked, 'nothing_to_restore': Ending.nothing,
  'store_unavailable': Ending.tryAgain, 'store_account_mismatch': Ending.support, 'not_eligible': Ending.support,
};

/// What to show: `restore.message` where there is one, else the app's own words. `ending` null: it is still being checked.
class Shown {
  const Shown(this.ending, this.restore);
  final Ending? ending;
  final Restore? restore;
}

/// For a spinner. It stops at `stillChecking`, where the person goes on and so does the restore, and at the end.
enum Step { askingStore, sending, checking, waiting, stillChecking }

typedef OnStep = void Function(Step step, {double? seconds, Restore? restore});

sealed class Failure implements Exception {}

/// No connection, or no answer after all tries. `retryAfterSeconds`: the pause that was due when it gave up.
class NoAnswer extends Failure {
  NoAnswer([this.retryAfterSeconds]);
  final double? retryAfterSeconds;
}

/// A fresh token was not taken either.
class SignIn extends Failure {}

/// The request has to change; for the developer.
class Refused extends Failure {
  Refused(this.status, this.problem);
  final int status;
  final Json problem;
}

enum _Next { done, freshToken, waitAsAsked, again, refused }

/// What follows a status: the table "Errors and limits" in entitlement-sync's http.md.
_Next _next(int? status) => switch (status) {
      null || 408 || 500 || 502 || 504 => _Next.again,
      >= 200 && < 300 => _Next.done,
      401 => _Next.freshToken,
      429 || 503 => _Next.waitAsAsked,
      > 500 => _Next.again,
      _ => _Next.refused,
    };

/// The longest time that the answer on disk is shown without a new one.
const _longestOffline = Duration(days: 3);

/// The pauses before a request is sent again, in seconds, unless the answer names one.
const _pauses = [1.0, 2.0, 4.0, 8.0];

/// A longer `Retry-After` is not waited for in front of a person.
const _longestPause = 60.0;

/// How often a restore is asked for, 20 s each, before the app lets it go on without waiting.
const _polls = 6;

double _jitter() => Random().nextDouble() / 4;
Future<void> _pause(double seconds) => Future<void>.delayed(Duration(milliseconds: (seconds * 1000).round()));
void _ignore(Step step, {double? seconds, Restore? restore}) {}

class Entitlements {
  Entitlements({
    required this.api,
    required this.user,
    required this.token,
    required this.file,
    this.language = 'en',
    this.now = DateTime.now,
    this.pause = _pause,
    this.jitter = _jitter,
    http.Client? client,
  }) : _client = client ?? http.Client();

  /// Where the routes begin: `https://api.example.com/v1`, or `…/v1/apps/NAME`.
  final String api;

  /// The signed-in user's id; the answer on disk counts for this user alone.
  final String user;

  /// Gives a user's sign-in token, or fails where another user is signed in by now; `true` asks for a fresh one (Firebase:
  /// `user.getIdToken(true)`).
  final Future<String> Function(String user, bool isFresh) token;

  /// Where the last answer is kept, best in the application support directory.
  final File file;

  /// The language of the texts: `PlatformDispatcher.instance.locale.toLanguageTag()`.
  final String language;
  final DateTime Function() now;
  final Future<void> Function(double seconds) pause;

  /// The share by which a pause is longer, so that not all devices come back at once: up to a quarter.
  final double Function() jitter;
  final http.Client _client;

  /// Counts sign-outs: an answer that was asked for before one is not written down after it.
  int _generation = 0;

  /// Asks what the user has; without an answer it is the one on disk, as long as that is shown. Throws [Failure].
  Future<Access> entitlement() async {
    final asked = _generation;
    try {
      final json = await _send('GET', '/entitlement', tries: 2, mayAnswerFromDisk: true);
      final access = _read(json, Access.new);
      try {
        final kept = jsonEncode({'user': user, 'at': now().millisecondsSinceEpoch, 'answer': json});
        final name = '${file.path}.${Random.secure().nextInt(1 << 32)}.new';
        final whole = await File(name).writeAsString(kept, flush: true);
        if (asked == _generation) {
          whole.renameSync(file.path);
        } else {
          whole.deleteSync();
        }
      } on FileSystemException {
        // If it can't be written, the answer is returned all the same.
      }
      return access;
    } on NoAnswer {
      final last = lastAnswer();
      if (last == null) rethrow;
      return last;
    }
  }

  /// The answer on disk, at once: until its `until`, at most three days, and not by a clock that was set back.
  Access? lastAnswer() {
    try {
      final kept = jsonDecode(file.readAsStringSync()) as Json;
      final access = Access(kept['answer'] as Json, isFromDisk: true, now: now());
      final age = now().difference(DateTime.fromMillisecondsSinceEpoch(kept['at'] as int));
      final isShown = age >= const Duration(minutes: -5) && age <= _longestOffline;
      return kept['user'] == user && isShown && (access.until?.isAfter(now()) ?? true) ? access : null;
    } catch (_) {
      return null; // None there, or half written.
    }
  }

  /// Forgets the answer on disk, as at sign-out; one that is under way is not kept either.
  void forget() {
    _generation++;
    if (file.existsSync()) file.deleteSync();
  }

  /// Sends the proof of a new purchase: the same call as Restore. Complete the purchase where the ending is `unlocked` and
  /// `restore.products` has its product.
  Future<Shown> afterPurchase(Proof proof, {OnStep onStep = _ignore}) =>
      restore(proofs: [proof], origin: 'paywall', onStep: onStep);

  /// Restores with what the device can show: sends the first 20 proofs.
  ///
  /// `askStore` asks the store first, and gives the name or code of its library's error, never its text:
  /// `Purchases.restorePurchases()`, `InAppPurchase.instance.restorePurchases()`. Throws [SignIn] and [Refused]; an outage
  /// ends in `tryAgain`, or in null once the restore was taken.
  Future<Shown> restore({
    List<Proof> proofs = const [],
    Future<String?> Function()? askStore,
    String origin = 'profile',
    OnStep onStep = _ignore,
  }) async {
    String? clientError;
    if (askStore != null) {
      onStep(Step.askingStore);
      clientError = await askStore();
    }
    Restore? restore;
    try {
      onStep(Step.sending);
      final body = {'proofs': proofs.take(20).toList(), 'client_error': clientError, 'origin': origin};
      var seen = restore = _read(await _send('POST', '/restores', body: body, onStep: onStep), Restore.new);
      onStep(Step.checking);
      for (var poll = 0; poll < _polls && !seen.hasEnded; poll++) {
        if (poll > 0) await pause(1);
        seen = restore = _read(await _send('GET', '/restores/${seen.id}?wait=25', onStep: onStep), Restore.new);
        if (seen.messageKey == 'still_checking') onStep(Step.stillChecking, restore: seen);
      }
      // What was unlocked is on disk before the person reads of it.
      if (seen.ending == Ending.unlocked) {
        try {
          await entitlement();
        } on Failure {
          // It is asked for again at the next launch.
        }
      }
      return Shown(seen.ending, seen);
    } on NoAnswer {
      // Once it was taken it goes on, whether it can be asked for or not.
      return Shown(restore == null ? Ending.tryAgain : null, restore);
    }
  }

  /// The user's cases with support, those first in which an answer is awaited.
  Future<List<Ticket>> tickets() async {
    final all = _read(await _send('GET', '/tickets'), (json) => _list(json['tickets'], Ticket.new));
    return [...all.where((one) => one.state == 'question'), ...all.where((one) => one.state != 'question')];
  }

  /// The case to show.
  Future<Ticket?> ticket() async => (await tickets()).firstOrNull;

  /// Answers a question; an owner's `decision` is `object` or `agree`. Gives the text to show.
  Future<String> reply(Ticket ticket, {String? text, String? decision}) async {
    final body = {'text': text, 'decision': decision, if (decision == 'agree') 'question_id': ticket.questionId};
    return _read(await _send('POST', '/tickets/${ticket.id}/replies', body: body), (json) => json['message'] as String);
  }

  /// Gives the owner's purchase to their other account, whose app shows the reference. Gives the text to show.
  Future<String> release(String reference) async =>
      _read(await _send('POST', '/releases', body: {'reference': reference}), (json) => json['message'] as String);

  /// Sends a request, and again as the table says, always under the same idempotency key.
  Future<Json> _send(
    String method,
    String path, {
    Json? body,
    OnStep onStep = _ignore,
    int? tries,
    bool mayAnswerFromDisk = false,
  }) async {
    final random = Random.secure();
    final key = [for (var count = 0; count < 4; count++) random.nextInt(1 << 32).toRadixString(16).padLeft(8, '0')].join();
    var asksFresh = false, wasRenewed = false;
    for (var attempt = 1;; attempt++) {
      http.Response? answer;
      try {
        final request = http.Request(method, Uri.parse(api + path));
        request.headers['Authorization'] = 'Bearer ${await token(user, asksFresh)}';
        asksFresh = false;
        request.headers['Accept-Language'] = language;
        if (body != null) {
          request.headers['Content-Type'] = 'application/json';
          request.headers['Idempotency-Key'] = key;
          request.bodyBytes = utf8.encode(jsonEncode(body));
        }
        const limit = Duration(seconds: 35);
        answer = await http.Response.fromStream(await _client.send(request).timeout(limit)).timeout(limit);
      } catch (_) {
        answer = null; // No connection, or no token without one.
      }
      // Not an answer of the service but of a proxy: what is on disk is shown in its place.
      final type = answer?.headers['content-type'] ?? '';
      final isNoWord = mayAnswerFromDisk && !type.startsWith('application/problem+json');
      var wait = _pauses[min(attempt, _pauses.length) - 1];
      switch (_next(answer?.statusCode)) {
        case _Next.done:
          return _json(answer) ?? (throw NoAnswer());
        case _Next.refused:
          if (isNoWord) throw NoAnswer();
          throw Refused(answer?.statusCode ?? 0, _json(answer) ?? {});
        case _Next.freshToken:
          if (wasRenewed) throw isNoWord ? NoAnswer() : SignIn();
          asksFresh = wasRenewed = true;
          attempt--;
          continue;
        case _Next.waitAsAsked:
          wait = max(1.0, double.tryParse(answer?.headers['retry-after'] ?? '') ?? wait);
        case _Next.again:
          break;
      }
      if (attempt >= (tries ?? _pauses.length + 1) || wait > _longestPause) throw NoAnswer(wait);
      wait *= 1 + jitter();
      onStep(Step.waiting, seconds: wait);
      await pause(wait);
    }
  }

  // A page of a proxy is no answer.
  static Json? _json(http.Response? answer) {
    try {
      return jsonDecode(utf8.decode(answer?.bodyBytes ?? const [])) as Json;
    } catch (_) {
      return null;
    }
  }

  static T _read<T>(Json json, T Function(Json) make) {
    try {
      return make(json);
    } catch (_) {
      throw NoAnswer();
    }
  }
}
